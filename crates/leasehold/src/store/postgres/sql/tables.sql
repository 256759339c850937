-- The tables. The migration replaces `leasehold.` by the schema of the URL, and adds to tables of
-- an older version what they lack, see schema.rs.
--
-- Moments and spans are microseconds on the clock of the server, see clock.sql. A claim is 0 for
-- the whole key, -1 for a share of it, or a number of permits.

-- One row for each key. Its row lock puts all steps at the key in an order. An idle key keeps its
-- row, and so its counter, for a while, see clients.sql.
CREATE TABLE IF NOT EXISTS leasehold.locks (
    key text COLLATE "C" PRIMARY KEY,
    -- The highest fencing token so far.
    counter bigint NOT NULL DEFAULT 0,
    -- The holder that has the key alone, even if its lease has ended.
    owner text,
    expires bigint NOT NULL DEFAULT 0,
    ttl bigint NOT NULL DEFAULT 0,
    since bigint NOT NULL DEFAULT 0,
    fence_first bigint,
    fence_count integer,
    why text,
    idle boolean NOT NULL DEFAULT false,
    -- The end of the last lease of those that share the key. `shares` has their rows.
    shared_until bigint,
    -- How many permits there are if the key is a semaphore, and how many of them are taken. The
    -- number includes holders whose lease has ended and whose row is still there.
    permits integer,
    taken integer NOT NULL DEFAULT 0,
    -- No place in the line has a lower or a higher number.
    first_seq bigint NOT NULL DEFAULT 1,
    last_seq bigint NOT NULL DEFAULT 0,
    -- How many places the line has, dead ones included.
    waiting integer NOT NULL DEFAULT 0,
    -- Until when newcomers give way to a head that a release has woken.
    awaits bigint NOT NULL DEFAULT 0,
    touched bigint NOT NULL DEFAULT 0,
    -- A request to let go, as `at|by|reason`, and the owner that it is for, which may be gone. A
    -- grant clears the owner, because a client may use the same owner token again.
    revoked_owner text,
    revoked text
) WITH (fillfactor = 70);

-- The holders that share a key. The migration makes an index of their ends, too.
CREATE TABLE IF NOT EXISTS leasehold.shares (
    key text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    claim integer NOT NULL,
    expires bigint NOT NULL,
    ttl bigint NOT NULL,
    since bigint NOT NULL,
    fence_first bigint,
    fence_count integer,
    why text,
    revoked text,
    PRIMARY KEY (key, owner)
);

-- The places of all lines, oldest first.
CREATE TABLE IF NOT EXISTS leasehold.places (
    key text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    owner text COLLATE "C" NOT NULL,
    claim integer NOT NULL,
    -- 0 may be made the owner, 1 is only woken.
    stance integer NOT NULL,
    expires bigint NOT NULL,
    handed_ttl bigint NOT NULL,
    reserve bigint NOT NULL,
    ask_no bigint NOT NULL,
    inbox text NOT NULL,
    why text,
    since bigint NOT NULL,
    PRIMARY KEY (key, seq),
    UNIQUE (key, owner)
) WITH (fillfactor = 70);

-- How clients describe themselves.
CREATE TABLE IF NOT EXISTS leasehold.clients (
    id text COLLATE "C" PRIMARY KEY,
    host text NOT NULL,
    pid bigint NOT NULL,
    username text NOT NULL,
    command text NOT NULL,
    seen bigint NOT NULL
);

-- One row: the versions, and the memory of `purge`. Every build reads the version by its place, so
-- new columns come last.
CREATE TABLE IF NOT EXISTS leasehold.meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- The version of the tables and functions; 0 if no migration has ended.
    version integer NOT NULL,
    -- The highest counter of the keys that were forgotten.
    counter_floor bigint NOT NULL DEFAULT 0,
    purge_after text COLLATE "C" NOT NULL DEFAULT '',
    purge_due bigint NOT NULL DEFAULT 0,
    -- The oldest build that the tables and functions serve.
    serves integer NOT NULL DEFAULT 1
);
INSERT INTO leasehold.meta (version) VALUES (0) ON CONFLICT DO NOTHING;
