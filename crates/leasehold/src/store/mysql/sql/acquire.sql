-- The decision of core/line.rs about an ask, after dead places at the front were removed.
--
-- verdict: grant | hand_over | wait | give_way | retry
CREATE PROCEDURE leasehold_decide(
    the_key VARBINARY(512), now_us BIGINT, asker VARBINARY(128), the_claim BIGINT, is_new BOOLEAN,
    OUT verdict VARBINARY(16)
)
SQL SECURITY INVOKER
BEGIN
    DECLARE head_owner, head_inbox VARBINARY(128);
    DECLARE head_stance, head_state INT;
    DECLARE head_claim, l_shared, l_awaits BIGINT;
    DECLARE is_head, is_room, is_head_room, is_alone BOOLEAN;
    CALL leasehold_front(
        the_key, now_us, head_owner, head_inbox, head_stance, head_claim, head_state);
    SET is_head = COALESCE(head_owner = asker, FALSE);
    SELECT owner IS NOT NULL AND expires > now_us, COALESCE(shared_until, 0), awaits
    INTO is_alone, l_shared, l_awaits FROM leasehold_locks WHERE name = the_key;
    CALL leasehold_admits(the_key, now_us, the_claim, is_room);
    CALL leasehold_admits(the_key, now_us, head_claim, is_head_room);
    SET verdict = CASE
        WHEN (is_head OR head_state = 0) AND is_room THEN 'grant'
        WHEN head_state = 2 AND NOT is_alone THEN 'retry'
        WHEN head_state = 1 AND NOT is_head AND head_stance = 0 AND is_head_room THEN 'hand_over'
        WHEN head_state = 1 AND head_stance = 1 AND NOT is_alone AND l_shared <= now_us THEN
            -- Only newcomers wait for a watcher that a release has woken.
            IF(is_new AND l_awaits > now_us AND l_awaits <= now_us + 20000, 'give_way', 'grant')
        ELSE 'wait'
    END;
END
//
-- Grants a key, or puts the asker in line.
--
-- stance: null takes no place, 0 may be made the owner, 1 is only woken.
-- of_permits: how many permits the asker takes the key to have; null for a lock.
--
-- status: granted | taken | full (line) | used (otherwise: `used_permits` says as what) Then: first
-- token, how many, retry_in, ahead, used_permits, and the client that holds the key and was told
-- that another client waits.
CREATE PROCEDURE leasehold_acquire(
    the_key VARBINARY(512), asker VARBINARY(128), the_claim BIGINT, of_permits BIGINT,
    the_ttl BIGINT, the_reserve BIGINT, the_stance INT, waiter_ttl BIGINT, the_handed_ttl BIGINT,
    the_ask_no BIGINT, the_inbox VARBINARY(128), the_why VARBINARY(4096)
)
SQL SECURITY INVOKER
step: BEGIN
    DECLARE l_counter, l_expires, l_shared, l_permits, l_first, l_last, l_touched BIGINT;
    DECLARE l_fence_first, l_fence_count, l_waiting BIGINT;
    DECLARE l_owner, holder, wanted_of VARBINARY(128);
    DECLARE now_us, my_seq, first, how_many, retry_in, ahead, gone BIGINT;
    DECLARE is_known BOOLEAN DEFAULT TRUE;
    DECLARE is_room, is_used, is_new, l_idle BOOLEAN DEFAULT FALSE;
    DECLARE handed INT DEFAULT 0;
    DECLARE verdict VARBINARY(16);
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_known = FALSE;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    -- A step that the server cut off may have left its transaction open.
    ROLLBACK;
    IF the_stance IS NULL THEN
        -- A lock on the row is a write. An asker that only tries a taken key needs none.
        SELECT owner, expires, first_seq, last_seq, permits
        INTO l_owner, l_expires, l_first, l_last, l_permits
        FROM leasehold_locks WHERE name = the_key;
        CALL leasehold_clock(now_us);
        IF l_owner <> asker AND l_expires > now_us AND l_first > l_last
            AND l_permits <=> of_permits
        THEN
            SELECT 'taken', NULL, NULL, l_expires - now_us, 0, NULL, NULL;
            LEAVE step;
        END IF;
    END IF;
    START TRANSACTION;
    IF the_claim = 0 THEN
        -- The usual case in one statement: the key is free, and nobody waits. The counter rises as
        -- in leasehold_grant. It is set last, so that all else is computed from its old value. If
        -- this statement waits for the row, the clock was read before the wait. So the lease ends
        -- no later than its owner expects.
        CALL leasehold_clock(now_us);
        UPDATE leasehold_locks SET
            fence_first = IF(the_reserve > 0,
                LAST_INSERT_ID(GREATEST(counter, now_us - the_reserve) + 1), NULL),
            fence_count = IF(the_reserve > 0,
                GREATEST(1, LEAST(the_reserve, now_us - counter)), NULL),
            owner = asker, expires = now_us + the_ttl, ttl = the_ttl, since = now_us,
            why = the_why, idle = FALSE, awaits = 0, touched = now_us, revoked_owner = NULL,
            counter = IF(the_reserve > 0, GREATEST(counter, now_us - the_reserve)
                + GREATEST(1, LEAST(the_reserve, now_us - counter)), counter)
        WHERE name = the_key AND (owner IS NULL OR expires <= now_us) AND first_seq > last_seq
            AND shared_until IS NULL AND permits IS NULL
            AND counter < 9007199254740991 - the_reserve;
        IF ROW_COUNT() = 1 THEN
            COMMIT;
            IF the_reserve > 0 THEN
                SET first = LAST_INSERT_ID();
                SET how_many = GREATEST(1, LEAST(the_reserve, now_us - first + 1));
            END IF;
            SELECT 'granted', first, how_many, 0, 0, NULL, NULL;
            LEAVE step;
        END IF;
    END IF;
    SET is_known = TRUE;
    SELECT counter, owner, expires, fence_first, fence_count, shared_until, permits, first_seq,
        last_seq, waiting, touched, idle
    INTO l_counter, l_owner, l_expires, l_fence_first, l_fence_count, l_shared, l_permits, l_first,
        l_last, l_waiting, l_touched, l_idle
    FROM leasehold_locks WHERE name = the_key FOR UPDATE;
    IF NOT is_known THEN
        -- This waits for other transactions that make the row, and locks it.
        -- Somebody may have emptied all tables, that of the versions too.
        INSERT INTO leasehold_locks (name, counter)
        SELECT the_key, COALESCE(MAX(m.counter_floor), 0) FROM leasehold_meta m
        ON DUPLICATE KEY UPDATE idle = idle;
        SELECT counter, owner, expires, fence_first, fence_count, shared_until, permits, first_seq,
            last_seq, waiting, touched, idle
        INTO l_counter, l_owner, l_expires, l_fence_first, l_fence_count, l_shared, l_permits,
            l_first, l_last, l_waiting, l_touched, l_idle
        FROM leasehold_locks WHERE name = the_key FOR UPDATE;
    END IF;
    CALL leasehold_clock(now_us);

    IF l_owner = asker AND l_expires > now_us THEN
        UPDATE leasehold_locks SET expires = GREATEST(expires, now_us + the_ttl), ttl = the_ttl,
            touched = now_us WHERE name = the_key;
        COMMIT;
        SELECT 'granted', l_fence_first, l_fence_count, 0, 0, NULL, NULL;
        LEAVE step;
    END IF;
    IF NOT (l_permits <=> of_permits) THEN
        CALL leasehold_is_in_use(the_key, now_us, is_used);
        IF is_used OR (l_permits IS NOT NULL AND of_permits IS NOT NULL) THEN
            COMMIT;
            SELECT 'used', NULL, NULL, 0, 0, l_permits, NULL;
            LEAVE step;
        END IF;
        -- Rows of holders of the earlier use may be left, but their leases have ended.
        DELETE FROM leasehold_shares WHERE name = the_key;
        UPDATE leasehold_locks SET shared_until = NULL, taken = 0, permits = of_permits
        WHERE name = the_key;
        SET l_shared = NULL;
    END IF;
    IF l_shared IS NOT NULL THEN
        CALL leasehold_bury(the_key, now_us);
        SET is_known = TRUE;
        SELECT fence_first, fence_count INTO first, how_many
        FROM leasehold_shares WHERE name = the_key AND owner = asker;
        IF is_known THEN
            UPDATE leasehold_shares SET expires = GREATEST(expires, now_us + the_ttl),
                ttl = the_ttl
            WHERE name = the_key AND owner = asker;
            UPDATE leasehold_locks SET touched = now_us,
                shared_until = GREATEST(COALESCE(shared_until, 0), now_us + the_ttl)
            WHERE name = the_key;
            COMMIT;
            SELECT 'granted', first, how_many, 0, 0, NULL, NULL;
            LEAVE step;
        END IF;
    END IF;

    CALL leasehold_admits(the_key, now_us, the_claim, is_room);
    IF the_stance IS NOT NULL AND (l_first <= l_last OR NOT is_room) THEN
        SELECT seq INTO my_seq FROM leasehold_places WHERE name = the_key AND owner = asker;
        SET is_new = my_seq IS NULL;
        IF is_new AND l_waiting >= 10000 THEN
            -- Dead places do not count, because a line of them must not lock living waiters out.
            DELETE FROM leasehold_places WHERE name = the_key AND expires <= now_us;
            SET gone = ROW_COUNT();
            UPDATE leasehold_locks SET waiting = waiting - gone WHERE name = the_key;
            IF l_waiting - gone >= 10000 THEN
                COMMIT;
                SELECT 'full';
                LEAVE step;
            END IF;
        END IF;
        IF is_new THEN
            SET my_seq = l_last + 1;
            INSERT INTO leasehold_places VALUES
                (the_key, my_seq, asker, the_claim, the_stance, now_us + waiter_ttl,
                 the_handed_ttl, the_reserve, the_ask_no, the_inbox, the_why, now_us);
            -- A line in use keeps the row from being forgotten.
            UPDATE leasehold_locks SET waiting = waiting + 1, last_seq = my_seq, touched = now_us
            WHERE name = the_key;
        ELSE
            UPDATE leasehold_places SET claim = the_claim, stance = the_stance,
                expires = GREATEST(expires, now_us + waiter_ttl), handed_ttl = the_handed_ttl,
                reserve = the_reserve, ask_no = GREATEST(ask_no, the_ask_no), inbox = the_inbox,
                why = the_why
            WHERE name = the_key AND seq = my_seq;
            IF l_touched < now_us - 60000000 THEN
                UPDATE leasehold_locks SET touched = now_us WHERE name = the_key;
            END IF;
        END IF;
    END IF;
    SET holder = IF(l_expires > now_us, l_owner, NULL);

    turns: LOOP
        CALL leasehold_decide(the_key, now_us, asker, the_claim, is_new, verdict);
        IF verdict <> 'hand_over' OR handed > 64 THEN
            LEAVE turns;
        END IF;
        CALL leasehold_hand_over(the_key, now_us);
        SET handed = handed + 1;
    END LOOP;
    IF verdict = 'grant' THEN
        IF l_first <= l_last OR is_new THEN
            DELETE FROM leasehold_places WHERE name = the_key AND owner = asker;
            SET gone = ROW_COUNT();
            UPDATE leasehold_locks SET waiting = waiting - gone WHERE name = the_key;
        END IF;
        CALL leasehold_grant(
            the_key, now_us, asker, the_claim, the_ttl, the_reserve, the_why, first, how_many);
        IF the_claim <> 0 THEN
            -- The waiters behind this one may share the key too.
            CALL leasehold_hand_over_run(the_key, now_us);
        END IF;
        COMMIT;
        SELECT 'granted', first, how_many, 0, 0, NULL, NULL;
        LEAVE step;
    END IF;

    SELECT owner, expires, first_seq, last_seq, waiting
    INTO l_owner, l_expires, l_first, l_last, l_waiting
    FROM leasehold_locks WHERE name = the_key;
    SET retry_in = CASE
        WHEN verdict = 'give_way' THEN 20000
        WHEN verdict <> 'wait' THEN 0
        WHEN l_owner IS NOT NULL AND l_expires > now_us THEN l_expires - now_us
        ELSE COALESCE((SELECT MIN(expires) FROM leasehold_shares
            WHERE name = the_key AND expires > now_us) - now_us, 0)
    END;
    IF the_stance IS NULL AND l_first <= l_last THEN
        SELECT seq INTO my_seq FROM leasehold_places WHERE name = the_key AND owner = asker;
    END IF;
    SET ahead = CASE
        WHEN my_seq IS NULL THEN l_waiting
        WHEN my_seq = l_last THEN l_waiting - 1
        -- No place has left from the middle.
        WHEN l_waiting = l_last - l_first + 1 THEN my_seq - l_first
        ELSE (SELECT COUNT(*) FROM leasehold_places
            WHERE name = the_key AND seq >= l_first AND seq < my_seq)
    END;
    IF the_stance IS NOT NULL AND (is_new OR ahead = 0) AND LENGTH(holder) = 35 THEN
        -- An owner token of Leasehold ends in the id of its client.
        SET wanted_of = SUBSTR(holder, 24);
        -- Each hint is two more writes. So a holder that uses its lease is told again about every
        -- five seconds only.
        IF is_new OR l_idle OR the_ask_no % 5 = 0 THEN
            CALL leasehold_mail(wanted_of, now_us, CONCAT('wanted ', the_key));
        END IF;
    END IF;
    COMMIT;
    SELECT 'taken', NULL, NULL, retry_in, ahead, NULL, wanted_of;
END
//
