-- The clock of all leases, in microseconds after 1970. The server fixes it for each statement of a
-- procedure. A step that waited for its row reads it in a later statement.
CREATE PROCEDURE leasehold_clock(OUT now_us BIGINT)
SQL SECURITY INVOKER
BEGIN
    SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
END
//
-- Whether a claim can be granted in addition to the living holders. For holders that share the key,
-- call leasehold_bury before.
CREATE PROCEDURE leasehold_admits(
    the_key VARBINARY(512), now_us BIGINT, the_claim BIGINT, OUT is_room BOOLEAN
)
SQL SECURITY INVOKER
BEGIN
    SELECT CASE
        WHEN owner IS NOT NULL AND expires > now_us THEN FALSE
        WHEN COALESCE(shared_until, 0) <= now_us THEN IF(
            permits IS NULL, the_claim <= 0, the_claim BETWEEN 1 AND permits)
        WHEN permits IS NULL THEN the_claim = -1
        ELSE the_claim BETWEEN 1 AND permits - taken
    END INTO is_room FROM leasehold_locks WHERE name = the_key;
END
//
-- Whether the key has a living holder or waiter.
CREATE PROCEDURE leasehold_is_in_use(
    the_key VARBINARY(512), now_us BIGINT, OUT is_used BOOLEAN
)
SQL SECURITY INVOKER
BEGIN
    SELECT (l.owner IS NOT NULL AND l.expires > now_us) OR COALESCE(l.shared_until, 0) > now_us
        OR EXISTS (SELECT 1 FROM leasehold_places p
            WHERE p.name = the_key AND p.seq >= l.first_seq AND p.expires > now_us)
    INTO is_used FROM leasehold_locks l WHERE l.name = the_key;
END
//
-- Removes holders that share the key, if their lease has ended.
CREATE PROCEDURE leasehold_bury(the_key VARBINARY(512), now_us BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE gone BIGINT DEFAULT 0;
    DECLARE dead BIGINT DEFAULT 0;
    SELECT COUNT(*), COALESCE(SUM(GREATEST(claim, 0)), 0) INTO dead, gone
    FROM leasehold_shares WHERE name = the_key AND expires <= now_us;
    IF dead > 0 THEN
        DELETE FROM leasehold_shares WHERE name = the_key AND expires <= now_us;
        UPDATE leasehold_locks SET
            taken = IF(shared_until <= now_us, 0, taken - gone),
            shared_until = IF(shared_until <= now_us, NULL, shared_until)
        WHERE name = the_key;
    END IF;
END
//
-- Makes an owner a holder, with up to `reserve` fencing tokens. The tokens follow the counter,
-- which is raised so far that they end at the clock. So tokens rise even after a replica without
-- the last grants took over. A block never runs ahead of the clock, except for its first token.
CREATE PROCEDURE leasehold_grant(
    the_key VARBINARY(512), now_us BIGINT, heir VARBINARY(128), the_claim BIGINT, the_ttl BIGINT,
    reserve BIGINT, the_why VARBINARY(4096), OUT first BIGINT, OUT how_many BIGINT
)
SQL SECURITY INVOKER
BEGIN
    DECLARE last BIGINT;
    SET first = NULL;
    SET how_many = NULL;
    SELECT counter INTO last FROM leasehold_locks WHERE name = the_key;
    IF reserve > 0 THEN
        SET first = GREATEST(last, now_us - reserve) + 1;
        SET how_many = GREATEST(1, LEAST(reserve, now_us - first + 1));
        IF first + how_many - 1 > 9007199254740991 THEN
            SET first = NULL;
            SET how_many = NULL;
        ELSE
            SET last = first + how_many - 1;
        END IF;
    END IF;
    IF the_claim = 0 THEN
        UPDATE leasehold_locks SET counter = last, owner = heir, expires = now_us + the_ttl,
            ttl = the_ttl, since = now_us, fence_first = first, fence_count = how_many,
            why = the_why, idle = FALSE, awaits = 0, touched = now_us, revoked_owner = NULL
        WHERE name = the_key;
    ELSE
        INSERT INTO leasehold_shares VALUES
            (the_key, heir, the_claim, now_us + the_ttl, the_ttl, now_us, first, how_many, the_why,
             NULL);
        UPDATE leasehold_locks SET counter = last, owner = NULL,
            taken = taken + GREATEST(the_claim, 0),
            shared_until = GREATEST(COALESCE(shared_until, 0), now_us + the_ttl),
            awaits = 0, touched = now_us
        WHERE name = the_key;
    END IF;
END
//
