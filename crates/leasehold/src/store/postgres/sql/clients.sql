-- Writes how a client describes itself.
CREATE OR REPLACE FUNCTION leasehold.record(
    the_id text, the_host text, the_pid bigint, the_username text, the_command text
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- Another transaction may keep the row locked, and the steps behind this one would wait for it.
    PERFORM set_config('lock_timeout', '500', true);
    INSERT INTO leasehold.clients AS c (id, host, pid, username, command, seen)
    VALUES (the_id, the_host, the_pid, the_username, the_command, leasehold.clock())
    ON CONFLICT (id) DO UPDATE SET host = excluded.host, pid = excluded.pid,
        username = excluded.username, command = excluded.command, seen = excluded.seen;
END
$$;

-- Forgets keys that were idle for 10 minutes and clients that were silent for 20, if a run is due.
-- Looks at up to 1000 keys, and leaves out rows that others keep locked. Returns whether another
-- run has work.
CREATE OR REPLACE FUNCTION leasehold.purge() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    idle_us CONSTANT bigint := 600000000;
    m leasehold.meta;
    at bigint := leasehold.clock();
    last text;
    looked bigint;
    gone text[];
    highest bigint;
BEGIN
    -- Another transaction may keep a table locked. The keys that this run has locked by then must
    -- not stay locked for long.
    PERFORM set_config('lock_timeout', '500', true);
    -- A due time that is far ahead comes from a clock that was set back since.
    SELECT * INTO m FROM leasehold.meta WHERE purge_due <= at OR purge_due > at + 60000000
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT max(w.key), count(*) INTO last, looked FROM (
        SELECT l.key FROM leasehold.locks l WHERE l.key > m.purge_after ORDER BY l.key LIMIT 1000
    ) w;
    -- The row of a key is touched when its line gets a place. So a place that came meanwhile keeps
    -- the row, because this looks at the row again once it is locked.
    WITH doomed AS (
        SELECT l.key FROM leasehold.locks l
        WHERE l.key > m.purge_after AND l.key <= last AND l.touched <= at - idle_us
            AND (l.owner IS NULL OR l.expires <= at) AND coalesce(l.shared_until, 0) <= at
            AND NOT EXISTS (SELECT FROM leasehold.places p WHERE p.key = l.key AND p.expires > at)
        FOR UPDATE SKIP LOCKED
    ), deleted AS (
        DELETE FROM leasehold.locks l USING doomed WHERE l.key = doomed.key
        RETURNING l.key, l.counter
    )
    SELECT array_agg(d.key), max(d.counter) INTO gone, highest FROM deleted d;
    DELETE FROM leasehold.places p WHERE p.key = ANY (gone);
    DELETE FROM leasehold.shares s WHERE s.key = ANY (gone);
    UPDATE leasehold.clients SET seen = at WHERE id IN (
        SELECT c.id FROM leasehold.clients c WHERE c.seen <= at - idle_us AND c.id IN (
        SELECT substr(l.owner, 24) FROM leasehold.locks l
        WHERE l.key > m.purge_after AND l.key <= last AND l.expires > at
        UNION SELECT substr(s.owner, 24) FROM leasehold.shares s
        WHERE s.key > m.purge_after AND s.key <= last
        UNION SELECT substr(p.owner, 24) FROM leasehold.places p
        WHERE p.key > m.purge_after AND p.key <= last)
        FOR UPDATE SKIP LOCKED);
    DELETE FROM leasehold.clients WHERE id IN (
        SELECT c.id FROM leasehold.clients c WHERE c.seen <= at - 2 * idle_us
        FOR UPDATE SKIP LOCKED);
    UPDATE leasehold.meta SET counter_floor = greatest(counter_floor, highest),
        purge_after = CASE WHEN looked < 1000 THEN '' ELSE last END,
        purge_due = at + CASE WHEN looked < 1000 THEN 60000000 ELSE 500000 END;
    RETURN looked = 1000;
END
$$;
