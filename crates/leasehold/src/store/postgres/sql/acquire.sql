-- Grants a key, or puts the asker in line.
--
-- stance: null takes no place, 0 may be made the owner, 1 is only woken.
-- of_permits: how many permits the asker takes the key to have; null for a lock.
-- patience: how long to wait for the row of the key, in milliseconds.
--
-- status: granted | taken | full (line) | used (otherwise: `used_permits` says as what)
-- wanted_of: the client that holds the key and was told that another client waits.
CREATE OR REPLACE FUNCTION leasehold.acquire(
    the_key text, asker text, the_claim integer, of_permits integer, the_ttl bigint,
    the_reserve bigint, the_stance integer, waiter_ttl bigint, the_handed_ttl bigint,
    the_ask_no bigint, the_inbox text, the_why text, patience integer,
    OUT status text, OUT first bigint, OUT count integer, OUT retry_in bigint, OUT ahead bigint,
    OUT used_permits integer, OUT wanted_of text
) LANGUAGE plpgsql AS $$
DECLARE
    l leasehold.locks;
    before leasehold.locks;
    s leasehold.shares;
    f record;
    g record;
    at bigint;
    my_seq bigint;
    is_new boolean;
    holder text;
    gone integer;
BEGIN
    status := 'taken';
    retry_in := 0;
    ahead := 0;
    PERFORM set_config('lock_timeout', patience::text, true);
    at := leasehold.clock();
    IF the_claim = 0 THEN
        -- The usual case in one statement: the key is free, and nobody waits. The counter rises as
        -- in leasehold.grant_to. If this statement waits for the row, the clock was read before the
        -- wait. So the lease ends no later than its owner expects.
        UPDATE leasehold.locks SET
            counter = CASE WHEN the_reserve > 0 THEN greatest(counter, at - the_reserve)
                + greatest(1, least(the_reserve, at - counter)) ELSE counter END,
            fence_first = CASE WHEN the_reserve > 0
                THEN greatest(counter, at - the_reserve) + 1 END,
            fence_count = CASE WHEN the_reserve > 0
                THEN greatest(1, least(the_reserve, at - counter)) END,
            owner = asker, expires = at + the_ttl, ttl = the_ttl, since = at, why = the_why,
            idle = false, awaits = 0, touched = at, revoked_owner = NULL
        WHERE key = the_key AND (owner IS NULL OR expires <= at) AND first_seq > last_seq
            AND shared_until IS NULL AND permits IS NULL
            AND counter < 9007199254740991 - the_reserve
        RETURNING fence_first, fence_count INTO first, count;
        IF FOUND THEN
            status := 'granted';
            RETURN;
        END IF;
    END IF;
    IF the_stance IS NULL THEN
        -- A lock on the row is a write. An asker that only tries a taken key needs none.
        SELECT * INTO l FROM leasehold.locks WHERE key = the_key;
        at := leasehold.clock();
        IF l.owner <> asker AND l.expires > at AND l.first_seq > l.last_seq
            AND l.permits IS NOT DISTINCT FROM of_permits
        THEN
            retry_in := l.expires - at;
            RETURN;
        END IF;
    END IF;
    LOOP
        SELECT * INTO l FROM leasehold.locks WHERE key = the_key FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO leasehold.locks (key, counter)
        VALUES (the_key, (SELECT counter_floor FROM leasehold.meta)) ON CONFLICT DO NOTHING;
    END LOOP;
    before := l;
    at := leasehold.clock();

    IF l.owner = asker AND l.expires > at THEN
        UPDATE leasehold.locks SET expires = greatest(expires, at + the_ttl), ttl = the_ttl,
            touched = at WHERE key = the_key;
        status := 'granted';
        first := l.fence_first;
        count := l.fence_count;
        RETURN;
    END IF;
    IF l.permits IS DISTINCT FROM of_permits THEN
        IF (l.permits IS NOT NULL AND of_permits IS NOT NULL) OR leasehold.is_in_use(l, at) THEN
            status := 'used';
            used_permits := l.permits;
            RETURN;
        END IF;
        -- Rows of holders of the earlier use may be left, but their leases have ended.
        DELETE FROM leasehold.shares WHERE key = the_key;
        l.shared_until := NULL;
        l.taken := 0;
        l.permits := of_permits;
    END IF;
    IF l.shared_until IS NOT NULL THEN
        l := leasehold.bury(l, at);
        SELECT * INTO s FROM leasehold.shares WHERE key = the_key AND owner = asker;
        IF FOUND THEN
            UPDATE leasehold.shares SET expires = greatest(expires, at + the_ttl), ttl = the_ttl
            WHERE key = the_key AND owner = asker;
            l.shared_until := greatest(l.shared_until, at + the_ttl);
            l.touched := at;
            PERFORM leasehold.save(l);
            status := 'granted';
            first := s.fence_first;
            count := s.fence_count;
            RETURN;
        END IF;
    END IF;

    IF the_stance IS NOT NULL
        AND (l.first_seq <= l.last_seq OR NOT leasehold.admits(l, at, the_claim))
    THEN
        UPDATE leasehold.places SET claim = the_claim, stance = the_stance,
            expires = greatest(expires, at + waiter_ttl), handed_ttl = the_handed_ttl,
            reserve = the_reserve, ask_no = greatest(ask_no, the_ask_no), inbox = the_inbox,
            why = the_why
        WHERE key = the_key AND owner = asker RETURNING seq INTO my_seq;
        is_new := NOT FOUND;
        IF is_new AND l.waiting >= 10000 THEN
            -- Dead places do not count, because a line of them must not lock living waiters out.
            DELETE FROM leasehold.places WHERE key = the_key AND expires <= at;
            GET DIAGNOSTICS gone = ROW_COUNT;
            l.waiting := l.waiting - gone;
            IF l.waiting >= 10000 THEN
                status := 'full';
                PERFORM leasehold.save(l);
                RETURN;
            END IF;
        END IF;
        IF is_new THEN
            l.waiting := l.waiting + 1;
            l.last_seq := l.last_seq + 1;
            my_seq := l.last_seq;
            INSERT INTO leasehold.places VALUES
                (the_key, my_seq, asker, the_claim, the_stance, at + waiter_ttl, the_handed_ttl,
                 the_reserve, the_ask_no, the_inbox, the_why, at);
        END IF;
        IF is_new OR l.touched < at - 60000000 THEN
            -- A line in use keeps the row from being forgotten.
            l.touched := at;
        END IF;
    END IF;
    holder := CASE WHEN l.expires > at THEN l.owner END;

    FOR handed IN 0..64 LOOP
        f := leasehold.front(l, at);
        l := f.l;
        status := leasehold.decide_ask(
            l, at, the_claim, f.is_alive, f.is_hidden, coalesce(f.head_owner = asker, false),
            f.head_stance, f.head_claim, is_new);
        IF status = 'hand_over' THEN
            l := leasehold.hand_over(l, at);
            CONTINUE;
        END IF;
        IF status = 'grant' THEN
            IF l.first_seq <= l.last_seq THEN
                DELETE FROM leasehold.places WHERE key = the_key AND owner = asker;
                GET DIAGNOSTICS gone = ROW_COUNT;
                l.waiting := l.waiting - gone;
            END IF;
            g := leasehold.grant_to(
                l, at, asker, the_claim, the_ttl, the_reserve, the_why);
            l := g.l;
            IF the_claim <> 0 THEN
                -- The waiters behind this one may share the key too.
                l := leasehold.hand_over_run(l, at);
            END IF;
            PERFORM leasehold.save(l);
            status := 'granted';
            first := g.fence_first;
            count := g.fence_count;
            RETURN;
        END IF;
        EXIT;
    END LOOP;

    retry_in := CASE
        WHEN status = 'give_way' THEN 20000
        WHEN status <> 'wait' THEN 0
        WHEN l.owner IS NOT NULL AND l.expires > at THEN l.expires - at
        ELSE coalesce((SELECT min(expires) FROM leasehold.shares
            WHERE key = the_key AND expires > at) - at, 0)
    END;
    status := 'taken';
    IF the_stance IS NULL AND l.first_seq <= l.last_seq THEN
        SELECT seq INTO my_seq FROM leasehold.places WHERE key = the_key AND owner = asker;
    END IF;
    ahead := CASE
        WHEN my_seq IS NULL THEN l.waiting
        WHEN my_seq = l.last_seq THEN l.waiting - 1
        -- No place has left from the middle.
        WHEN l.waiting = l.last_seq - l.first_seq + 1 THEN my_seq - l.first_seq
        ELSE (SELECT count(*) FROM leasehold.places
            WHERE key = the_key AND seq >= l.first_seq AND seq < my_seq)
    END;
    IF the_stance IS NOT NULL AND (is_new OR ahead = 0) AND length(holder) = 35 THEN
        -- An owner token of Leasehold ends in the id of its client.
        wanted_of := substr(holder, 24);
        -- Each message wakes all sessions of the database that listen. So a holder that uses its
        -- lease is told again about every five seconds only.
        IF is_new OR l.idle OR the_ask_no % 5 = 0 THEN
            PERFORM leasehold.mail(wanted_of, 'wanted ' || the_key);
        END IF;
    END IF;
    IF l IS DISTINCT FROM before THEN
        PERFORM leasehold.save(l);
    END IF;
END
$$;

-- The decision of core/line.rs about an ask: grant | hand_over | wait | give_way | retry.
CREATE OR REPLACE FUNCTION leasehold.decide_ask(
    l leasehold.locks, at bigint, claim integer, is_alive boolean, is_hidden boolean,
    is_head boolean, head_stance integer, head_claim integer, is_new boolean
) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    is_alone boolean := l.owner IS NOT NULL AND l.expires > at;
BEGIN
    IF (is_head OR NOT (is_alive OR is_hidden)) AND leasehold.admits(l, at, claim) THEN
        RETURN 'grant';
    ELSIF is_hidden AND NOT is_alone THEN
        RETURN 'retry';
    ELSIF is_alive AND NOT is_head AND head_stance = 0
        AND leasehold.admits(l, at, head_claim)
    THEN
        RETURN 'hand_over';
    ELSIF is_alive AND head_stance = 1 AND NOT is_alone AND coalesce(l.shared_until, 0) <= at THEN
        -- Only newcomers wait for a watcher that a release has woken.
        IF is_new AND l.awaits > at AND l.awaits <= at + 20000 THEN
            RETURN 'give_way';
        END IF;
        RETURN 'grant';
    END IF;
    RETURN 'wait';
END
$$;

-- Whether the key has a living holder or waiter.
CREATE OR REPLACE FUNCTION leasehold.is_in_use(l leasehold.locks, at bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN (l.owner IS NOT NULL AND l.expires > at) OR coalesce(l.shared_until, 0) > at
        OR EXISTS (SELECT FROM leasehold.places p
            WHERE p.key = l.key AND p.seq >= l.first_seq AND p.expires > at);
END
$$;
