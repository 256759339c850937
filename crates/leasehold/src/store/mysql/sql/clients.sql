-- Writes how a client describes itself.
CREATE PROCEDURE leasehold_record(
    the_id VARBINARY(128), the_host VARBINARY(1024), the_pid BIGINT, the_username VARBINARY(1024),
    the_command VARBINARY(1024)
)
SQL SECURITY INVOKER
BEGIN
    DECLARE now_us BIGINT;
    ROLLBACK;
    CALL leasehold_clock(now_us);
    INSERT INTO leasehold_clients (id, host, pid, username, command, seen)
    VALUES (the_id, the_host, the_pid, the_username, the_command, now_us)
    ON DUPLICATE KEY UPDATE host = the_host, pid = the_pid, username = the_username,
        command = the_command, seen = now_us;
END
//
-- Forgets keys that were idle for 10 minutes, clients that were silent for 20, and hints that
-- nobody fetched for one, if a run is due. Looks at up to 1000 keys, and leaves out those that
-- others keep locked. Returns whether another run has work.
CREATE PROCEDURE leasehold_purge()
SQL SECURITY INVOKER
step: BEGIN
    DECLARE idle_us BIGINT DEFAULT 600000000;
    DECLARE now_us, looked_at, its_counter, highest, last_hint BIGINT;
    DECLARE from_name, to_name, its_name VARBINARY(512);
    DECLARE its_client VARBINARY(128);
    DECLARE is_known BOOLEAN DEFAULT TRUE;
    DECLARE idle_keys CURSOR FOR
        SELECT l.name FROM leasehold_locks l
        WHERE l.name > from_name AND l.name <= to_name AND l.touched <= now_us - idle_us
            AND (l.owner IS NULL OR l.expires <= now_us) AND COALESCE(l.shared_until, 0) <= now_us;
    DECLARE busy_clients CURSOR FOR
        SELECT c.id FROM leasehold_clients c WHERE c.seen <= now_us - idle_us AND c.id IN (
            SELECT SUBSTR(l.owner, 24) FROM leasehold_locks l
            WHERE l.name > from_name AND l.name <= to_name AND l.expires > now_us
            UNION SELECT SUBSTR(s.owner, 24) FROM leasehold_shares s
            WHERE s.name > from_name AND s.name <= to_name
            UNION SELECT SUBSTR(p.owner, 24) FROM leasehold_places p
            WHERE p.name > from_name AND p.name <= to_name);
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_known = FALSE;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    ROLLBACK;
    START TRANSACTION;
    CALL leasehold_clock(now_us);
    -- A due time that is far ahead comes from a clock that was set back since.
    SELECT purge_after INTO from_name FROM leasehold_meta
    WHERE purge_due <= now_us OR purge_due > now_us + 60000000
    FOR UPDATE SKIP LOCKED;
    IF NOT is_known THEN
        COMMIT;
        SELECT FALSE;
        LEAVE step;
    END IF;
    SELECT MAX(w.name), COUNT(*) INTO to_name, looked_at FROM (
        SELECT l.name FROM leasehold_locks l WHERE l.name > from_name ORDER BY l.name LIMIT 1000
    ) w;
    OPEN idle_keys;
    forget: LOOP
        FETCH idle_keys INTO its_name;
        IF NOT is_known THEN
            LEAVE forget;
        END IF;
        -- The row of a key is touched when its line gets a place. So a place that came meanwhile
        -- keeps the row, because this looks at the row again once it is locked.
        SELECT l.counter INTO its_counter FROM leasehold_locks l
        WHERE l.name = its_name AND l.touched <= now_us - idle_us
            AND (l.owner IS NULL OR l.expires <= now_us) AND COALESCE(l.shared_until, 0) <= now_us
        FOR UPDATE SKIP LOCKED;
        IF is_known THEN
            SELECT EXISTS (SELECT 1 FROM leasehold_places
                WHERE name = its_name AND expires > now_us) = 0 INTO is_known;
        END IF;
        IF is_known THEN
            DELETE FROM leasehold_locks WHERE name = its_name;
            DELETE FROM leasehold_places WHERE name = its_name;
            DELETE FROM leasehold_shares WHERE name = its_name;
            SET highest = GREATEST(COALESCE(highest, 0), its_counter);
        END IF;
        SET is_known = TRUE;
    END LOOP;
    CLOSE idle_keys;
    UPDATE leasehold_meta SET counter_floor = GREATEST(counter_floor, COALESCE(highest, 0)),
        purge_after = IF(looked_at < 1000, '', to_name),
        purge_due = now_us + IF(looked_at < 1000, 60000000, 500000);
    COMMIT;
    -- If another transaction keeps a row locked, the rest waits, and fails. No key is locked now.
    SELECT MAX(seq) INTO last_hint FROM leasehold_hints WHERE made <= now_us - 60000000;
    DELETE FROM leasehold_hints WHERE seq <= last_hint;
    START TRANSACTION;
    SET is_known = TRUE;
    OPEN busy_clients;
    keep: LOOP
        FETCH busy_clients INTO its_client;
        IF NOT is_known THEN
            LEAVE keep;
        END IF;
        UPDATE leasehold_clients SET seen = now_us WHERE id = its_client;
    END LOOP;
    CLOSE busy_clients;
    DELETE FROM leasehold_clients WHERE seen <= now_us - 2 * idle_us;
    COMMIT;
    SELECT looked_at = 1000;
END
//
