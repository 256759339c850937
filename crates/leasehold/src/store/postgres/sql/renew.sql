-- Restarts the ttl of a living lease. Never re-creates it.
--
-- patience: how many milliseconds to wait for the row. With 0, a row that another transaction keeps
-- locked gives an answer, because an error would undo all renewals of the message.
--
-- status: renewed | lost | kept
CREATE OR REPLACE FUNCTION leasehold.renew(
    the_key text, the_owner text, the_ttl bigint, at_least bigint, the_reserve bigint,
    is_idle boolean, patience integer,
    OUT status text, OUT first bigint, OUT count integer, OUT from_first bigint,
    OUT from_count integer, OUT wanted boolean, OUT request text
) LANGUAGE plpgsql AS $$
DECLARE
    l leasehold.locks;
    s leasehold.shares;
    at bigint;
    base bigint;
BEGIN
    IF patience > 0 THEN
        PERFORM set_config('lock_timeout', patience::text, true);
    ELSE
        -- This limits the wait for other locks, such as that of the table.
        PERFORM set_config('lock_timeout', '50', true);
        PERFORM FROM leasehold.locks WHERE key = the_key FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            PERFORM FROM leasehold.locks WHERE key = the_key;
            status := CASE WHEN FOUND THEN 'kept' ELSE 'lost' END;
            RETURN;
        END IF;
    END IF;
    IF at_least IS NULL AND the_reserve = 0 THEN
        -- The usual case in one statement: one owner has the key alone.
        UPDATE leasehold.locks SET ttl = the_ttl, idle = is_idle, touched = leasehold.clock(),
            expires = greatest(expires, leasehold.clock() + the_ttl)
        WHERE key = the_key AND owner = the_owner AND expires > leasehold.clock()
        RETURNING fence_first, fence_count,
            first_seq <= last_seq AND leasehold.is_wanted(key, first_seq),
            CASE WHEN revoked_owner = the_owner THEN revoked END
        INTO first, count, wanted, request;
        IF FOUND THEN
            status := 'renewed';
            RETURN;
        END IF;
    END IF;
    status := 'lost';
    SELECT * INTO l FROM leasehold.locks WHERE key = the_key FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    at := leasehold.clock();
    IF l.owner = the_owner AND l.expires > at THEN
        first := l.fence_first;
        count := l.fence_count;
        request := CASE WHEN l.revoked_owner = the_owner THEN l.revoked END;
    ELSE
        SELECT * INTO s FROM leasehold.shares
        WHERE key = the_key AND owner = the_owner AND expires > at;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        first := s.fence_first;
        count := s.fence_count;
        request := s.revoked;
    END IF;
    status := 'renewed';
    IF s.owner IS NULL AND at_least > l.counter THEN
        from_first := first;
        from_count := count;
        l.counter := at_least;
        first := at_least;
        count := 1;
    END IF;
    IF the_reserve > 0 THEN
        base := greatest(l.counter, at - the_reserve);
        IF base < 9007199254740991 THEN
            first := base + 1;
            count := greatest(1, least(the_reserve, at - base, 9007199254740991 - base));
            l.counter := base + count;
        END IF;
    END IF;
    IF s.owner IS NULL THEN
        UPDATE leasehold.locks SET counter = l.counter, expires = greatest(expires, at + the_ttl),
            ttl = the_ttl, idle = is_idle, fence_first = first, fence_count = count, touched = at
        WHERE key = the_key;
    ELSE
        UPDATE leasehold.shares SET expires = greatest(expires, at + the_ttl), ttl = the_ttl,
            fence_first = first, fence_count = count
        WHERE key = the_key AND owner = the_owner;
        UPDATE leasehold.locks SET counter = l.counter, touched = at,
            shared_until = greatest(shared_until, at + the_ttl)
        WHERE key = the_key;
    END IF;
    wanted := l.first_seq <= l.last_seq AND leasehold.is_wanted(the_key, l.first_seq);
END
$$;

-- Whether a living place is in the line of a key.
CREATE OR REPLACE FUNCTION leasehold.is_wanted(the_key text, from_seq bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM leasehold.places
        WHERE key = the_key AND seq >= from_seq AND expires > leasehold.clock());
END
$$;
