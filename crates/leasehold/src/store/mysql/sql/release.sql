-- Ends the lease and the place of an owner, and hands the key on, in the transaction of the caller.
-- Decides like `decide_release` and `wakes_next` in core/line.rs.
--
-- wish: free | keep (as `heir`) | wake | downgrade (to `heir`)
-- status: freed | handed_over | kept | not_held
CREATE PROCEDURE leasehold_leave(
    the_key VARBINARY(512), the_owner VARBINARY(128), wish VARBINARY(16), heir VARBINARY(128),
    the_ttl BIGINT, the_reserve BIGINT,
    OUT status VARBINARY(16), OUT first BIGINT, OUT how_many BIGINT
)
SQL SECURITY INVOKER
step: BEGIN
    DECLARE l_expires, l_since, l_shared, l_first, l_last, was_claim, gone, now_us BIGINT;
    DECLARE l_owner, head_owner, head_inbox VARBINARY(128);
    DECLARE l_why VARBINARY(4096);
    DECLARE head_stance, head_state INT;
    DECLARE head_claim BIGINT;
    DECLARE was_alone, was_head, is_room, is_free BOOLEAN DEFAULT FALSE;
    DECLARE is_known BOOLEAN DEFAULT TRUE;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_known = FALSE;
    SET status = 'not_held';
    SET first = NULL;
    SET how_many = NULL;
    SELECT owner, expires, since, why, shared_until, first_seq, last_seq
    INTO l_owner, l_expires, l_since, l_why, l_shared, l_first, l_last
    FROM leasehold_locks WHERE name = the_key FOR UPDATE;
    IF NOT is_known THEN
        LEAVE step;
    END IF;
    CALL leasehold_clock(now_us);
    IF l_first <= l_last THEN
        IF (l_owner IS NULL OR l_expires <= now_us) AND COALESCE(l_shared, 0) <= now_us THEN
            -- A release may have told the head alone that the key is free. See `wakes_next` in
            -- core/line.rs.
            CALL leasehold_front(
                the_key, now_us, head_owner, head_inbox, head_stance, head_claim, head_state);
            SET was_head = (head_state = 1 AND head_owner = the_owner);
        END IF;
        DELETE FROM leasehold_places WHERE name = the_key AND owner = the_owner;
        SET gone = ROW_COUNT();
        IF gone > 0 THEN
            UPDATE leasehold_locks SET waiting = waiting - gone WHERE name = the_key;
        END IF;
    END IF;
    SET was_alone = COALESCE(l_owner = the_owner AND l_expires > now_us, FALSE);
    IF was_alone AND wish = 'downgrade' THEN
        INSERT INTO leasehold_shares VALUES
            (the_key, heir, -1, GREATEST(l_expires, now_us + the_ttl), the_ttl, l_since, NULL, NULL,
             l_why, NULL);
        UPDATE leasehold_locks SET owner = NULL, touched = now_us,
            shared_until = GREATEST(l_expires, now_us + the_ttl)
        WHERE name = the_key;
        CALL leasehold_hand_over_run(the_key, now_us);
        SET status = 'kept';
        LEAVE step;
    END IF;
    IF l_shared IS NOT NULL THEN
        CALL leasehold_bury(the_key, now_us);
        SELECT claim INTO was_claim
        FROM leasehold_shares WHERE name = the_key AND owner = the_owner;
        DELETE FROM leasehold_shares WHERE name = the_key AND owner = the_owner;
        UPDATE leasehold_locks SET taken = taken - GREATEST(COALESCE(was_claim, 0), 0),
            shared_until = (SELECT MAX(expires) FROM leasehold_shares WHERE name = the_key)
        WHERE name = the_key;
    END IF;
    IF NOT was_alone AND was_claim IS NULL THEN
        IF wish <> 'wake' AND (l_owner IS NULL OR l_expires <= now_us) THEN
            -- Others may have waited behind the place that left, although there is room.
            CALL leasehold_hand_over_run(the_key, now_us);
        END IF;
        IF was_head THEN
            CALL leasehold_front(
                the_key, now_us, head_owner, head_inbox, head_stance, head_claim, head_state);
            SELECT (owner IS NULL OR expires <= now_us) AND COALESCE(shared_until, 0) <= now_us
            INTO is_free FROM leasehold_locks WHERE name = the_key;
            IF is_free AND head_state = 1 THEN
                -- 20 ms, as `GIVES_WAY_FOR` in core/line.rs.
                UPDATE leasehold_locks SET awaits = now_us + 20000 WHERE name = the_key;
                CALL leasehold_mail(head_inbox, now_us, CONCAT('free ', the_key));
            END IF;
        END IF;
        LEAVE step;
    END IF;

    UPDATE leasehold_locks SET owner = IF(was_alone, NULL, owner), touched = now_us
    WHERE name = the_key;
    CALL leasehold_front(
        the_key, now_us, head_owner, head_inbox, head_stance, head_claim, head_state);
    IF head_state = 1 AND head_stance = 0 AND wish <> 'wake' THEN
        CALL leasehold_admits(the_key, now_us, head_claim, is_room);
    END IF;
    IF is_room THEN
        SET status = 'handed_over';
        CALL leasehold_hand_over_run(the_key, now_us);
    ELSEIF wish = 'keep' AND was_alone AND head_state = 0 THEN
        SET status = 'kept';
        CALL leasehold_grant(
            the_key, now_us, heir, 0, the_ttl, the_reserve, l_why, first, how_many);
        UPDATE leasehold_locks SET expires = GREATEST(expires, l_expires), since = l_since
        WHERE name = the_key;
    ELSE
        SET status = 'freed';
        SELECT shared_until IS NULL INTO is_free FROM leasehold_locks WHERE name = the_key;
        IF is_free AND head_state > 0 THEN
            UPDATE leasehold_locks SET awaits = IF(head_state = 1, now_us + 20000, 0)
            WHERE name = the_key;
            CALL leasehold_mail(head_inbox, now_us, CONCAT('free ', the_key));
        END IF;
    END IF;
END
//
-- Ends the lease and the place of an owner, and hands the key on.
CREATE PROCEDURE leasehold_release(
    the_key VARBINARY(512), the_owner VARBINARY(128), wish VARBINARY(16), heir VARBINARY(128),
    the_ttl BIGINT, the_reserve BIGINT
)
SQL SECURITY INVOKER
step: BEGIN
    DECLARE status VARBINARY(16);
    DECLARE first, how_many, now_us BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    ROLLBACK;
    START TRANSACTION;
    IF wish IN ('free', 'wake') THEN
        -- The usual case in one statement: the key is the owner's alone, and nobody waits.
        CALL leasehold_clock(now_us);
        UPDATE leasehold_locks SET owner = NULL, touched = now_us
        WHERE name = the_key AND owner = the_owner AND expires > now_us AND first_seq > last_seq
            AND shared_until IS NULL;
        IF ROW_COUNT() = 1 THEN
            COMMIT;
            SELECT 'freed', NULL, NULL;
            LEAVE step;
        END IF;
    END IF;
    CALL leasehold_leave(
        the_key, the_owner, wish, heir, the_ttl, the_reserve, status, first, how_many);
    COMMIT;
    SELECT status, first, how_many;
END
//
