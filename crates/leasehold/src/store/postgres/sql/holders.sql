-- Whether a claim can be granted in addition to the living holders. For holders that share the key,
-- call leasehold.bury before.
CREATE OR REPLACE FUNCTION leasehold.admits(l leasehold.locks, at bigint, claim integer)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN l.owner IS NOT NULL AND l.expires > at THEN false
        WHEN coalesce(l.shared_until, 0) <= at THEN
            CASE WHEN l.permits IS NULL THEN claim <= 0 ELSE claim BETWEEN 1 AND l.permits END
        WHEN l.permits IS NULL THEN claim = -1
        ELSE claim BETWEEN 1 AND l.permits - l.taken
    END
$$;

-- Removes holders that share the key, if their lease has ended.
CREATE OR REPLACE FUNCTION leasehold.bury(l leasehold.locks, at bigint)
RETURNS leasehold.locks LANGUAGE plpgsql AS $$
DECLARE
    gone bigint;
BEGIN
    IF l.shared_until IS NULL THEN
        RETURN l;
    END IF;
    WITH dead AS (
        DELETE FROM leasehold.shares s WHERE s.key = l.key AND s.expires <= at RETURNING s.claim
    )
    SELECT coalesce(sum(greatest(claim, 0)), 0) INTO gone FROM dead;
    l.taken := l.taken - gone;
    IF l.shared_until <= at THEN
        l.taken := 0;
        l.shared_until := NULL;
    END IF;
    RETURN l;
END
$$;

-- Makes an owner a holder, with up to `reserve` fencing tokens. The tokens follow the counter,
-- which is raised so far that they end at the clock. So tokens rise even after a replica without
-- the last grants took over. A block never runs ahead of the clock, except for its first token.
CREATE OR REPLACE FUNCTION leasehold.grant_to(
    INOUT l leasehold.locks, at bigint, heir text, claim integer, ttl bigint, reserve bigint,
    why text, OUT fence_first bigint, OUT fence_count integer
) LANGUAGE plpgsql AS $$
BEGIN
    IF reserve > 0 THEN
        fence_first := greatest(l.counter, at - reserve) + 1;
        fence_count := greatest(1, least(reserve, at - fence_first + 1));
        IF fence_first + fence_count - 1 > 9007199254740991 THEN
            fence_first := NULL;
            fence_count := NULL;
        ELSE
            l.counter := fence_first + fence_count - 1;
        END IF;
    END IF;
    l.awaits := 0;
    l.touched := at;
    IF claim = 0 THEN
        l.owner := heir;
        l.expires := at + ttl;
        l.ttl := ttl;
        l.since := at;
        l.fence_first := fence_first;
        l.fence_count := fence_count;
        l.why := why;
        l.idle := false;
        l.revoked_owner := NULL;
        RETURN;
    END IF;
    l.owner := NULL;
    l.taken := l.taken + greatest(claim, 0);
    l.shared_until := greatest(l.shared_until, at + ttl);
    INSERT INTO leasehold.shares VALUES
        (l.key, heir, claim, at + ttl, ttl, at, fence_first, fence_count, why, NULL);
END
$$;

-- Writes the row of a key whose row lock is held.
CREATE OR REPLACE FUNCTION leasehold.save(l leasehold.locks)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE leasehold.locks SET counter = l.counter, owner = l.owner, expires = l.expires,
        ttl = l.ttl, since = l.since, fence_first = l.fence_first, fence_count = l.fence_count,
        why = l.why, idle = l.idle, shared_until = l.shared_until, permits = l.permits,
        taken = l.taken, first_seq = l.first_seq, last_seq = l.last_seq, waiting = l.waiting,
        awaits = l.awaits, touched = l.touched, revoked_owner = l.revoked_owner,
        revoked = l.revoked
    WHERE key = l.key;
END
$$;
