-- Restarts the ttl of a living lease. Never re-creates it. A part of a transaction.
--
-- waits: whether to wait for the row if another transaction keeps it locked. If not, a locked row
-- gives an answer, because an error would end the message.
--
-- status: renewed | lost | kept
CREATE PROCEDURE leasehold_renew_row(
    the_key VARBINARY(512), the_owner VARBINARY(128), the_ttl BIGINT, at_least BIGINT,
    the_reserve BIGINT, is_idle BOOLEAN, waits BOOLEAN,
    OUT status VARCHAR(8) CHARACTER SET utf8mb4, OUT first BIGINT, OUT how_many BIGINT,
    OUT from_first BIGINT, OUT from_count BIGINT, OUT wanted BOOLEAN, OUT request VARBINARY(8192)
)
SQL SECURITY INVOKER
step: BEGIN
    DECLARE l_counter, l_expires, l_first, l_last BIGINT;
    DECLARE l_owner, l_revoked_owner VARBINARY(128);
    DECLARE now_us, base BIGINT;
    DECLARE is_share BOOLEAN DEFAULT FALSE;
    DECLARE is_known BOOLEAN DEFAULT TRUE;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_known = FALSE;
    SET wanted = FALSE;
    IF NOT waits THEN
        -- MariaDB knows no NOWAIT in a procedure. A row that was skipped but exists is locked by
        -- another transaction. The look is a statement of its own, because as a part of an IF it
        -- would wait for the row.
        SELECT counter INTO l_counter FROM leasehold_locks
        WHERE name = the_key FOR UPDATE SKIP LOCKED;
        IF NOT is_known THEN
            SELECT EXISTS (SELECT 1 FROM leasehold_locks WHERE name = the_key) INTO is_known;
            IF is_known THEN
                SET status = 'kept';
                LEAVE step;
            END IF;
            SET is_known = TRUE;
        END IF;
    END IF;
    SELECT counter, expires, first_seq, last_seq, owner, revoked_owner, revoked, fence_first,
        fence_count
    INTO l_counter, l_expires, l_first, l_last, l_owner, l_revoked_owner, request, first, how_many
    FROM leasehold_locks WHERE name = the_key FOR UPDATE;
    CALL leasehold_clock(now_us);
    IF is_known AND NOT (l_owner <=> the_owner AND l_expires > now_us) THEN
        SET is_share = TRUE;
        SELECT fence_first, fence_count, revoked INTO first, how_many, request
        FROM leasehold_shares WHERE name = the_key AND owner = the_owner AND expires > now_us;
    ELSEIF NOT (l_revoked_owner <=> the_owner) THEN
        SET request = NULL;
    END IF;
    IF NOT is_known THEN
        SET status = 'lost', first = NULL, how_many = NULL, request = NULL;
        LEAVE step;
    END IF;
    IF NOT is_share AND at_least > l_counter THEN
        SET from_first = first, from_count = how_many;
        SET l_counter = at_least, first = at_least, how_many = 1;
    END IF;
    IF the_reserve > 0 THEN
        SET base = GREATEST(l_counter, now_us - the_reserve);
        IF base < 9007199254740991 THEN
            SET first = base + 1;
            SET how_many = GREATEST(
                1, LEAST(the_reserve, now_us - base, 9007199254740991 - base));
            SET l_counter = base + how_many;
        END IF;
    END IF;
    IF is_share THEN
        UPDATE leasehold_shares SET expires = GREATEST(expires, now_us + the_ttl), ttl = the_ttl,
            fence_first = first, fence_count = how_many
        WHERE name = the_key AND owner = the_owner;
        UPDATE leasehold_locks SET counter = l_counter, touched = now_us,
            shared_until = GREATEST(COALESCE(shared_until, 0), now_us + the_ttl)
        WHERE name = the_key;
    ELSE
        UPDATE leasehold_locks SET counter = l_counter, ttl = the_ttl, idle = is_idle,
            expires = GREATEST(expires, now_us + the_ttl), fence_first = first,
            fence_count = how_many, touched = now_us
        WHERE name = the_key;
    END IF;
    IF l_first <= l_last THEN
        SELECT EXISTS (SELECT 1 FROM leasehold_places
            WHERE name = the_key AND seq >= l_first AND expires > now_us) INTO wanted;
    END IF;
    SET status = 'renewed';
END
//
-- Renews one lease.
CREATE PROCEDURE leasehold_renew(
    the_key VARBINARY(512), the_owner VARBINARY(128), the_ttl BIGINT, at_least BIGINT,
    the_reserve BIGINT, is_idle BOOLEAN, waits BOOLEAN
)
SQL SECURITY INVOKER
BEGIN
    DECLARE status VARCHAR(8) CHARACTER SET utf8mb4;
    DECLARE first, how_many, from_first, from_count BIGINT;
    DECLARE wanted BOOLEAN;
    DECLARE request VARBINARY(8192);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    ROLLBACK;
    START TRANSACTION;
    CALL leasehold_renew_row(the_key, the_owner, the_ttl, at_least, the_reserve, is_idle, waits,
        status, first, how_many, from_first, from_count, wanted, request);
    COMMIT;
    SELECT status, first, how_many, from_first, from_count, wanted, request;
END
//
-- Renews many leases in one transaction. It answers `kept` for a key whose row is locked. The list
-- is an array of arrays, in JSON: key and owner as hexadecimal digits, ttl, at_least, reserve, and
-- 1 if the lease is idle.
--
-- The answer is one text with a line for each renewal, in their order: the columns of
-- leasehold_renew, `-` for NULL, and the request as hexadecimal digits.
CREATE PROCEDURE leasehold_renew_all(list MEDIUMTEXT CHARACTER SET utf8mb4)
SQL SECURITY INVOKER
BEGIN
    DECLARE the_key VARBINARY(512);
    DECLARE the_owner VARBINARY(128);
    DECLARE the_ttl, at_least, the_reserve, is_idle BIGINT;
    DECLARE status VARCHAR(8) CHARACTER SET utf8mb4;
    DECLARE first, how_many, from_first, from_count BIGINT;
    DECLARE wanted BOOLEAN;
    DECLARE request VARBINARY(8192);
    DECLARE answers MEDIUMTEXT CHARACTER SET utf8mb4;
    DECLARE is_over BOOLEAN DEFAULT FALSE;
    DECLARE renewals CURSOR FOR
        SELECT UNHEX(each_key), UNHEX(each_owner), each_ttl, each_at_least, each_reserve, each_idle
        FROM JSON_TABLE(list, '$[*]' COLUMNS (
            position FOR ORDINALITY, each_key VARCHAR(1024) CHARACTER SET utf8mb4 PATH '$[0]',
            each_owner VARCHAR(256) CHARACTER SET utf8mb4 PATH '$[1]',
            each_ttl BIGINT PATH '$[2]',
            each_at_least BIGINT PATH '$[3]', each_reserve BIGINT PATH '$[4]',
            each_idle BIGINT PATH '$[5]'
        )) AS each_renewal ORDER BY position;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_over = TRUE;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    ROLLBACK;
    START TRANSACTION;
    OPEN renewals;
    one: LOOP
        FETCH renewals INTO the_key, the_owner, the_ttl, at_least, the_reserve, is_idle;
        IF is_over THEN
            LEAVE one;
        END IF;
        CALL leasehold_renew_row(the_key, the_owner, the_ttl, at_least, the_reserve, is_idle,
            FALSE, status, first, how_many, from_first, from_count, wanted, request);
        SET answers = CONCAT_WS('\n', answers, CONCAT_WS(' ', status, COALESCE(first, '-'),
            COALESCE(how_many, '-'), COALESCE(from_first, '-'), COALESCE(from_count, '-'), wanted,
            COALESCE(HEX(request), '-')));
    END LOOP;
    CLOSE renewals;
    COMMIT;
    SELECT answers;
END
//
