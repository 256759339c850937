-- Lists the keys after a cursor that have a living holder or waiter and match a pattern of LIKE.
-- Looks at up to `most` keys. The last key that it looked at is among the rows; `is_end` says that
-- no further key exists. A page has 1000 keys, so one more row says that there are more keys.
CREATE OR REPLACE FUNCTION leasehold.list(after text, pattern text, most integer)
RETURNS TABLE (key text, is_match boolean, is_end boolean) LANGUAGE plpgsql STABLE AS $$
DECLARE
    at bigint := leasehold.clock();
BEGIN
    PERFORM set_config('lock_timeout', '500', true);
    RETURN QUERY WITH looked AS MATERIALIZED (
        SELECT l.key, l.key LIKE pattern AND leasehold.is_in_use(l, at) AS is_match
        FROM leasehold.locks l WHERE l.key > after ORDER BY l.key LIMIT most
    )
    SELECT k.key, k.is_match, (SELECT count(*) FROM looked) < most FROM looked k
    WHERE k.is_match OR k.key = (SELECT max(m.key) FROM looked m) ORDER BY k.key LIMIT 1001;
END
$$;

-- Ends the lease of the owner that was seen, as if that owner had released it. The next fencing
-- token is above those of that owner, even if this step grants none.
--
-- status: evicted | changed
CREATE OR REPLACE FUNCTION leasehold.evict(
    the_key text, seen text, patience integer, OUT status text
) LANGUAGE plpgsql AS $$
DECLARE
    l leasehold.locks;
    at bigint;
BEGIN
    status := 'changed';
    PERFORM set_config('lock_timeout', patience::text, true);
    SELECT * INTO l FROM leasehold.locks WHERE key = the_key FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    at := leasehold.clock();
    IF (l.owner = seen AND l.expires > at) IS NOT TRUE AND NOT EXISTS (
        SELECT FROM leasehold.shares WHERE key = the_key AND owner = seen AND expires > at)
    THEN
        RETURN;
    END IF;
    UPDATE leasehold.locks SET counter = least(greatest(counter, at) + 1, 9007199254740991)
    WHERE key = the_key;
    PERFORM leasehold.release(the_key, seen, 'free', NULL, 0, 0, patience);
    status := 'evicted';
END
$$;

-- Asks the owner that was seen to let go. An earlier request to it stays.
--
-- status: asked | changed
CREATE OR REPLACE FUNCTION leasehold.revoke(
    the_key text, seen text, words text, patience integer, OUT status text
) LANGUAGE plpgsql AS $$
DECLARE
    at bigint;
BEGIN
    status := 'changed';
    PERFORM set_config('lock_timeout', patience::text, true);
    PERFORM FROM leasehold.locks WHERE key = the_key FOR UPDATE;
    at := leasehold.clock();
    UPDATE leasehold.locks SET revoked_owner = seen,
        revoked = CASE WHEN revoked_owner = seen THEN revoked ELSE at || '|' || words END
    WHERE key = the_key AND owner = seen AND expires > at;
    IF NOT FOUND THEN
        UPDATE leasehold.shares SET revoked = coalesce(revoked, at || '|' || words)
        WHERE key = the_key AND owner = seen AND expires > at;
    END IF;
    IF FOUND THEN
        status := 'asked';
    END IF;
END
$$;

-- Changes how many permits a key has.
--
-- status: resized (`permits_before` is null if it was not a semaphore) | used (as a lock)
CREATE OR REPLACE FUNCTION leasehold.resize(
    the_key text, of_permits integer, patience integer,
    OUT status text, OUT permits_before integer
) LANGUAGE plpgsql AS $$
DECLARE
    l leasehold.locks;
    f record;
    at bigint;
BEGIN
    PERFORM set_config('lock_timeout', patience::text, true);
    LOOP
        SELECT * INTO l FROM leasehold.locks WHERE key = the_key FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO leasehold.locks (key, counter)
        VALUES (the_key, (SELECT counter_floor FROM leasehold.meta)) ON CONFLICT DO NOTHING;
    END LOOP;
    at := leasehold.clock();
    status := 'used';
    permits_before := l.permits;
    IF l.permits IS NULL THEN
        IF leasehold.is_in_use(l, at) THEN
            RETURN;
        END IF;
        DELETE FROM leasehold.shares WHERE key = the_key;
        l.shared_until := NULL;
        l.taken := 0;
    END IF;
    status := 'resized';
    l.permits := of_permits;
    l.touched := at;
    l := leasehold.hand_over_run(l, at);
    -- The next waiter may want more permits than there are now. Let it ask, so that it learns this.
    f := leasehold.front(l, at);
    IF f.is_alive OR f.is_hidden THEN
        PERFORM leasehold.mail(f.head_inbox, 'free ' || the_key);
    END IF;
    PERFORM leasehold.save(f.l);
END
$$;
