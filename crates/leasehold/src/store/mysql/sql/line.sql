-- Leaves a hint for the inbox of a client. It is seen once the step is committed.
CREATE PROCEDURE leasehold_mail(the_inbox VARBINARY(128), now_us BIGINT, text VARBINARY(1024))
SQL SECURITY INVOKER
BEGIN
    INSERT INTO leasehold_hints (inbox, made, hint) VALUES (the_inbox, now_us, text);
END
//
-- Removes up to 8 dead places at the front of a line, and looks at the place behind them.
--
-- head_state: 0 nobody is there | 1 the head is alive | 2 more than 8 are dead, so it is hidden
CREATE PROCEDURE leasehold_front(
    the_key VARBINARY(512), now_us BIGINT, OUT head_owner VARBINARY(128),
    OUT head_inbox VARBINARY(128), OUT head_stance INT, OUT head_claim BIGINT, OUT head_state INT
)
SQL SECURITY INVOKER
BEGIN
    DECLARE from_seq BIGINT;
    DECLARE to_seq BIGINT;
    DECLARE head_seq BIGINT;
    DECLARE is_alive BOOLEAN;
    DECLARE dead BIGINT DEFAULT 0;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET head_seq = NULL;
    SET head_state = 0;
    SELECT first_seq, last_seq INTO from_seq, to_seq FROM leasehold_locks WHERE name = the_key;
    IF from_seq <= to_seq THEN
        look: LOOP
            SELECT seq, owner, inbox, stance, claim, expires > now_us
            INTO head_seq, head_owner, head_inbox, head_stance, head_claim, is_alive
            FROM leasehold_places WHERE name = the_key AND seq >= from_seq ORDER BY seq LIMIT 1;
            IF head_seq IS NULL THEN
                SET from_seq = to_seq + 1;
                LEAVE look;
            END IF;
            SET from_seq = head_seq;
            IF is_alive OR dead = 8 THEN
                SET head_state = IF(is_alive, 1, 2);
                LEAVE look;
            END IF;
            DELETE FROM leasehold_places WHERE name = the_key AND seq = head_seq;
            SET dead = dead + 1;
            SET from_seq = head_seq + 1;
        END LOOP;
        UPDATE leasehold_locks SET first_seq = from_seq, waiting = waiting - dead
        WHERE name = the_key AND first_seq < from_seq;
    END IF;
    IF head_state = 0 THEN
        SET head_owner = NULL;
        SET head_inbox = NULL;
        SET head_stance = NULL;
        SET head_claim = NULL;
    END IF;
END
//
-- Makes the head of the line an owner, and tells it. The head is at `first_seq`.
CREATE PROCEDURE leasehold_hand_over(the_key VARBINARY(512), now_us BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE p_seq, p_claim, p_handed_ttl, p_reserve, p_ask_no, first, how_many BIGINT;
    DECLARE p_owner, p_inbox VARBINARY(128);
    DECLARE p_why VARBINARY(4096);
    SELECT p.seq, p.claim, p.handed_ttl, p.reserve, p.ask_no, p.owner, p.inbox, p.why
    INTO p_seq, p_claim, p_handed_ttl, p_reserve, p_ask_no, p_owner, p_inbox, p_why
    FROM leasehold_places p JOIN leasehold_locks l ON l.name = p.name AND l.first_seq = p.seq
    WHERE p.name = the_key;
    DELETE FROM leasehold_places WHERE name = the_key AND seq = p_seq;
    UPDATE leasehold_locks SET first_seq = p_seq + 1, waiting = waiting - 1 WHERE name = the_key;
    CALL leasehold_grant(
        the_key, now_us, p_owner, p_claim, p_handed_ttl, p_reserve, p_why, first, how_many);
    CALL leasehold_mail(p_inbox, now_us, CONCAT_WS(
        ' ', 'granted', p_ask_no, COALESCE(first, 0), COALESCE(how_many, 0), p_owner, the_key));
END
//
-- Hands the key to all waiters at the front of the line whose turn it is. If there are too many for
-- one step, tells the next of them to ask.
CREATE PROCEDURE leasehold_hand_over_run(the_key VARBINARY(512), now_us BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE handed, head_stance, head_state INT DEFAULT 0;
    DECLARE head_claim BIGINT;
    DECLARE head_owner, head_inbox VARBINARY(128);
    DECLARE is_room BOOLEAN;
    CALL leasehold_bury(the_key, now_us);
    run: WHILE handed <= 64 DO
        CALL leasehold_front(
            the_key, now_us, head_owner, head_inbox, head_stance, head_claim, head_state);
        IF head_state <> 1 OR head_stance <> 0 THEN
            LEAVE run;
        END IF;
        CALL leasehold_admits(the_key, now_us, head_claim, is_room);
        IF NOT is_room THEN
            LEAVE run;
        END IF;
        IF handed = 64 THEN
            CALL leasehold_mail(head_inbox, now_us, CONCAT('free ', the_key));
        ELSE
            CALL leasehold_hand_over(the_key, now_us);
        END IF;
        SET handed = handed + 1;
    END WHILE;
END
//
