-- Lists the keys after a cursor that have a living holder or waiter and match a pattern of LIKE.
-- Looks at up to `most` keys. The last key that it looked at is among the rows; `is_end` says that
-- no further key exists. A page has 1000 keys, so one more row says that there are more keys.
CREATE PROCEDURE leasehold_list(after VARBINARY(512), pattern VARBINARY(4096), most INT)
SQL SECURITY INVOKER
BEGIN
    DECLARE now_us BIGINT;
    CALL leasehold_clock(now_us);
    WITH looked AS (
        SELECT l.name,
            CONVERT(l.name USING utf8mb4) COLLATE utf8mb4_bin
                LIKE CONVERT(pattern USING utf8mb4) COLLATE utf8mb4_bin
            AND ((l.owner IS NOT NULL AND l.expires > now_us)
                OR COALESCE(l.shared_until, 0) > now_us
                OR EXISTS (SELECT 1 FROM leasehold_places p
                    WHERE p.name = l.name AND p.seq >= l.first_seq AND p.expires > now_us))
            AS is_match
        FROM leasehold_locks l WHERE l.name > after ORDER BY l.name LIMIT most
    ), bounds AS (
        SELECT MAX(name) AS last_name, COUNT(*) AS looked_at FROM looked
    )
    SELECT k.name, k.is_match, b.looked_at < most FROM looked k JOIN bounds b
    WHERE k.is_match OR k.name = b.last_name ORDER BY k.name LIMIT 1001;
END
//
-- Ends the lease of the owner that was seen, as if that owner had released it. The next fencing
-- token is above those of that owner, even if this step grants none.
--
-- status: evicted | changed
CREATE PROCEDURE leasehold_evict(the_key VARBINARY(512), seen VARBINARY(512))
SQL SECURITY INVOKER
step: BEGIN
    DECLARE now_us, first, how_many BIGINT;
    DECLARE is_holder BOOLEAN DEFAULT FALSE;
    DECLARE status VARBINARY(16);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    ROLLBACK;
    START TRANSACTION;
    CALL leasehold_lock(the_key, now_us);
    SELECT EXISTS (SELECT 1 FROM leasehold_locks
            WHERE name = the_key AND owner = seen AND expires > now_us)
        OR EXISTS (SELECT 1 FROM leasehold_shares
            WHERE name = the_key AND owner = seen AND expires > now_us) INTO is_holder;
    IF NOT is_holder THEN
        COMMIT;
        SELECT 'changed';
        LEAVE step;
    END IF;
    UPDATE leasehold_locks
    SET counter = LEAST(GREATEST(counter, now_us) + 1, 9007199254740991) WHERE name = the_key;
    CALL leasehold_leave(the_key, seen, 'free', NULL, 0, 0, status, first, how_many);
    COMMIT;
    SELECT 'evicted';
END
//
-- Locks the row of a key, if there is one, and then reads the clock.
CREATE PROCEDURE leasehold_lock(the_key VARBINARY(512), OUT now_us BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE is_known BOOLEAN;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_known = FALSE;
    SELECT TRUE INTO is_known FROM leasehold_locks WHERE name = the_key FOR UPDATE;
    CALL leasehold_clock(now_us);
END
//
-- Asks the owner that was seen to let go. An earlier request to it stays.
--
-- status: asked | changed
CREATE PROCEDURE leasehold_revoke(
    the_key VARBINARY(512), seen VARBINARY(512), words VARBINARY(8000)
)
SQL SECURITY INVOKER
BEGIN
    DECLARE now_us BIGINT;
    DECLARE is_alone, is_share BOOLEAN DEFAULT FALSE;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    ROLLBACK;
    START TRANSACTION;
    CALL leasehold_lock(the_key, now_us);
    SELECT EXISTS (SELECT 1 FROM leasehold_locks
            WHERE name = the_key AND owner = seen AND expires > now_us),
        EXISTS (SELECT 1 FROM leasehold_shares
            WHERE name = the_key AND owner = seen AND expires > now_us)
    INTO is_alone, is_share;
    IF is_alone THEN
        UPDATE leasehold_locks
        SET revoked = IF(revoked_owner <=> seen, revoked, CONCAT(now_us, '|', words)),
            revoked_owner = seen
        WHERE name = the_key;
    ELSEIF is_share THEN
        UPDATE leasehold_shares SET revoked = COALESCE(revoked, CONCAT(now_us, '|', words))
        WHERE name = the_key AND owner = seen;
    END IF;
    COMMIT;
    SELECT IF(is_alone OR is_share, 'asked', 'changed');
END
//
-- Changes how many permits a key has.
--
-- status: resized (then how many there were, null if it was not a semaphore) | used (as a lock)
CREATE PROCEDURE leasehold_resize(the_key VARBINARY(512), of_permits BIGINT)
SQL SECURITY INVOKER
step: BEGIN
    DECLARE now_us, before_permits, head_claim BIGINT;
    DECLARE head_owner, head_inbox VARBINARY(128);
    DECLARE head_stance, head_state INT;
    DECLARE is_used BOOLEAN;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    ROLLBACK;
    START TRANSACTION;
    INSERT INTO leasehold_locks (name, counter)
    SELECT the_key, COALESCE(MAX(m.counter_floor), 0) FROM leasehold_meta m
    ON DUPLICATE KEY UPDATE idle = idle;
    CALL leasehold_lock(the_key, now_us);
    SELECT permits INTO before_permits FROM leasehold_locks WHERE name = the_key;
    IF before_permits IS NULL THEN
        CALL leasehold_is_in_use(the_key, now_us, is_used);
        IF is_used THEN
            COMMIT;
            SELECT 'used';
            LEAVE step;
        END IF;
        DELETE FROM leasehold_shares WHERE name = the_key;
        UPDATE leasehold_locks SET shared_until = NULL, taken = 0 WHERE name = the_key;
    END IF;
    UPDATE leasehold_locks SET permits = of_permits, touched = now_us WHERE name = the_key;
    CALL leasehold_hand_over_run(the_key, now_us);
    -- The next waiter may want more permits than there are now. Let it ask, so that it learns this.
    CALL leasehold_front(
        the_key, now_us, head_owner, head_inbox, head_stance, head_claim, head_state);
    IF head_state > 0 THEN
        CALL leasehold_mail(head_inbox, now_us, CONCAT('free ', the_key));
    END IF;
    COMMIT;
    SELECT 'resized', before_permits;
END
//
