-- The tables. The migration adds to tables of an older version what they lack, see migration.rs.
-- `//` ends a statement, in all files here.
--
-- Moments and spans are microseconds on the clock of the server. A claim is 0 for the whole key, -1
-- for a share of it, or a number of permits. Texts are bytes of UTF-8, because a text of the server
-- would take `a` and `a ` for one name.

-- One row for each key. Its row lock puts all steps at the key in an order. An idle key keeps its
-- row, and so its counter, for a while, see clients.sql.
CREATE TABLE IF NOT EXISTS leasehold_locks (
    name VARBINARY(512) NOT NULL PRIMARY KEY,
    -- The highest fencing token so far.
    counter BIGINT NOT NULL DEFAULT 0,
    -- The holder that has the key alone, even if its lease has ended.
    owner VARBINARY(128),
    expires BIGINT NOT NULL DEFAULT 0,
    ttl BIGINT NOT NULL DEFAULT 0,
    since BIGINT NOT NULL DEFAULT 0,
    fence_first BIGINT,
    fence_count BIGINT,
    why VARBINARY(4096),
    idle BOOLEAN NOT NULL DEFAULT FALSE,
    -- The end of the last lease of those that share the key. leasehold_shares has their rows.
    shared_until BIGINT,
    -- How many permits there are if the key is a semaphore, and how many of them are taken. The
    -- number includes holders whose lease has ended and whose row is still there.
    permits BIGINT,
    taken BIGINT NOT NULL DEFAULT 0,
    -- No place in the line has a lower or a higher number.
    first_seq BIGINT NOT NULL DEFAULT 1,
    last_seq BIGINT NOT NULL DEFAULT 0,
    -- How many places the line has, dead ones included.
    waiting BIGINT NOT NULL DEFAULT 0,
    -- Until when newcomers give way to a head that a release has woken.
    awaits BIGINT NOT NULL DEFAULT 0,
    touched BIGINT NOT NULL DEFAULT 0,
    -- A request to let go, as `at|by|reason`, and the owner that it is for, which may be gone. A
    -- grant clears the owner, because a client may use the same owner token again.
    revoked_owner VARBINARY(128),
    revoked VARBINARY(8192)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4
//
-- The holders that share a key.
CREATE TABLE IF NOT EXISTS leasehold_shares (
    name VARBINARY(512) NOT NULL,
    owner VARBINARY(128) NOT NULL,
    claim BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    ttl BIGINT NOT NULL,
    since BIGINT NOT NULL,
    fence_first BIGINT,
    fence_count BIGINT,
    why VARBINARY(4096),
    revoked VARBINARY(8192),
    PRIMARY KEY (name, owner),
    KEY by_end (name, expires)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4
//
-- The places of all lines, oldest first. An owner has one place in a line. The row lock of the key
-- ensures this, since a unique index would lock its gaps.
CREATE TABLE IF NOT EXISTS leasehold_places (
    name VARBINARY(512) NOT NULL,
    seq BIGINT NOT NULL,
    owner VARBINARY(128) NOT NULL,
    claim BIGINT NOT NULL,
    -- 0 may be made the owner, 1 is only woken.
    stance INT NOT NULL,
    expires BIGINT NOT NULL,
    handed_ttl BIGINT NOT NULL,
    reserve BIGINT NOT NULL,
    ask_no BIGINT NOT NULL,
    inbox VARBINARY(128) NOT NULL,
    why VARBINARY(4096),
    since BIGINT NOT NULL,
    PRIMARY KEY (name, seq),
    KEY by_owner (name, owner)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4
//
-- How clients describe themselves.
CREATE TABLE IF NOT EXISTS leasehold_clients (
    id VARBINARY(128) NOT NULL PRIMARY KEY,
    host VARBINARY(1024) NOT NULL,
    pid BIGINT NOT NULL,
    username VARBINARY(1024) NOT NULL,
    command VARBINARY(1024) NOT NULL,
    seen BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4
//
-- The hints that nobody has fetched yet. The client that fetches a hint deletes it.
CREATE TABLE IF NOT EXISTS leasehold_hints (
    seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    inbox VARBINARY(128) NOT NULL,
    made BIGINT NOT NULL,
    hint VARBINARY(1024) NOT NULL,
    KEY by_inbox (inbox, seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4
//
-- One row: the versions, and what a purge remembers. Every build reads the version by its place, so
-- new columns come last.
CREATE TABLE IF NOT EXISTS leasehold_meta (
    one INT NOT NULL DEFAULT 1 PRIMARY KEY,
    -- The version of the tables and procedures. A migration writes it last.
    version INT NOT NULL,
    -- The highest counter of the keys that were forgotten.
    counter_floor BIGINT NOT NULL DEFAULT 0,
    purge_after VARBINARY(512) NOT NULL DEFAULT '',
    purge_due BIGINT NOT NULL DEFAULT 0,
    -- The oldest build that the tables and procedures serve. A migration writes it first.
    serves INT NOT NULL DEFAULT 1
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4
//
INSERT INTO leasehold_meta (version) VALUES (0) ON DUPLICATE KEY UPDATE version = version
//
