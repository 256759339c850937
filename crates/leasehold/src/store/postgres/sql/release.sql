-- Ends the lease and the place of an owner, and hands the key on. Decides like `decide_release` and
-- `wakes_next` in core/line.rs.
--
-- wish: free | keep (as `heir`) | wake | downgrade (to `heir`)
-- status: freed | handed_over | kept | not_held
CREATE OR REPLACE FUNCTION leasehold.release(
    the_key text, the_owner text, wish text, heir text, the_ttl bigint, the_reserve bigint,
    patience integer,
    OUT status text, OUT first bigint, OUT count integer
) LANGUAGE plpgsql AS $$
DECLARE
    l leasehold.locks;
    before leasehold.locks;
    f record;
    g record;
    at bigint;
    was_alone boolean;
    was_claim integer;
    was_head boolean := false;
    is_free boolean;
    gone integer;
BEGIN
    status := 'not_held';
    PERFORM set_config('lock_timeout', patience::text, true);
    IF wish IN ('free', 'wake') THEN
        -- The usual case in one statement: nobody waits.
        UPDATE leasehold.locks SET owner = NULL, touched = leasehold.clock()
        WHERE key = the_key AND owner = the_owner AND expires > leasehold.clock()
            AND first_seq > last_seq AND shared_until IS NULL;
        IF FOUND THEN
            status := 'freed';
            RETURN;
        END IF;
    END IF;
    SELECT * INTO l FROM leasehold.locks WHERE key = the_key FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    at := leasehold.clock();
    before := l;
    was_alone := l.owner = the_owner AND l.expires > at;
    -- A holder has no place.
    IF l.first_seq <= l.last_seq AND was_alone IS NOT TRUE THEN
        IF (l.owner IS NULL OR l.expires <= at) AND coalesce(l.shared_until, 0) <= at THEN
            -- A release may have told the head alone that the key is free. See `wakes_next` in
            -- core/line.rs.
            f := leasehold.front(l, at);
            l := f.l;
            was_head := f.is_alive AND f.head_owner = the_owner;
        END IF;
        DELETE FROM leasehold.places WHERE key = the_key AND owner = the_owner;
        GET DIAGNOSTICS gone = ROW_COUNT;
        l.waiting := l.waiting - gone;
    END IF;
    IF was_alone AND wish = 'downgrade' THEN
        l := leasehold.share_with(l, at, heir, the_ttl);
        PERFORM leasehold.save(leasehold.hand_over_run(l, at));
        status := 'kept';
        RETURN;
    END IF;
    IF l.shared_until IS NOT NULL THEN
        l := leasehold.bury(l, at);
        DELETE FROM leasehold.shares WHERE key = the_key AND owner = the_owner
        RETURNING claim INTO was_claim;
        l.taken := l.taken - greatest(was_claim, 0);
        SELECT max(expires) INTO l.shared_until FROM leasehold.shares WHERE key = the_key;
    END IF;
    IF was_alone IS NOT TRUE AND was_claim IS NULL THEN
        IF wish <> 'wake' AND (l.owner IS NULL OR l.expires <= at) THEN
            -- Others may have waited behind the place that left, although there is room.
            l := leasehold.hand_over_run(l, at);
        END IF;
        IF was_head AND (l.owner IS NULL OR l.expires <= at)
            AND coalesce(l.shared_until, 0) <= at
        THEN
            f := leasehold.front(l, at);
            l := f.l;
            IF f.is_alive THEN
                -- 20 ms, as `GIVES_WAY_FOR` in core/line.rs.
                l.awaits := at + 20000;
                PERFORM leasehold.mail(f.head_inbox, 'free ' || the_key);
            END IF;
        END IF;
        IF l IS DISTINCT FROM before THEN
            PERFORM leasehold.save(l);
        END IF;
        RETURN;
    END IF;

    IF was_alone THEN
        l.owner := NULL;
    END IF;
    l.touched := at;
    f := leasehold.front(l, at);
    l := f.l;
    is_free := l.shared_until IS NULL;
    IF wish <> 'wake' AND f.is_alive AND f.head_stance = 0
        AND leasehold.admits(l, at, f.head_claim)
    THEN
        status := 'handed_over';
        l := leasehold.hand_over_run(l, at);
    ELSIF wish = 'keep' AND was_alone AND NOT (f.is_alive OR f.is_hidden) THEN
        status := 'kept';
        g := leasehold.grant_to(l, at, heir, 0, the_ttl, the_reserve, before.why);
        l := g.l;
        l.expires := greatest(l.expires, before.expires);
        l.since := before.since;
        first := g.fence_first;
        count := g.fence_count;
    ELSE
        status := 'freed';
        IF is_free AND (f.is_alive OR f.is_hidden) THEN
            l.awaits := CASE WHEN f.is_alive THEN at + 20000 ELSE 0 END;
            PERFORM leasehold.mail(f.head_inbox, 'free ' || the_key);
        END IF;
    END IF;
    PERFORM leasehold.save(l);
END
$$;

-- Turns the holder that has the key alone into one that shares it, under another owner token.
CREATE OR REPLACE FUNCTION leasehold.share_with(
    l leasehold.locks, at bigint, heir text, the_ttl bigint
) RETURNS leasehold.locks LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO leasehold.shares VALUES
        (l.key, heir, -1, greatest(l.expires, at + the_ttl), the_ttl, l.since, NULL, NULL, l.why,
         NULL);
    l.shared_until := greatest(l.expires, at + the_ttl);
    l.owner := NULL;
    l.touched := at;
    RETURN l;
END
$$;
