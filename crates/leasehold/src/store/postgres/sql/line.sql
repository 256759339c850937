-- Sends a hint to the inbox of a client. In the whole server, commits with hints come one after the
-- other. So no step sends a hint without need.
CREATE OR REPLACE FUNCTION leasehold.mail(inbox text, hint text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('leasehold:' || inbox, hint);
END
$$;

-- Removes up to 8 dead places at the front of a line, and looks at the place behind them: alive, or
-- hidden if more than 8 are dead.
CREATE OR REPLACE FUNCTION leasehold.front(
    INOUT l leasehold.locks, at bigint, OUT head_owner text, OUT head_inbox text,
    OUT head_stance integer, OUT head_claim integer, OUT is_alive boolean, OUT is_hidden boolean
) LANGUAGE plpgsql AS $$
DECLARE
    p record;
    dead integer := 0;
    head_seq bigint;
BEGIN
    is_alive := false;
    is_hidden := false;
    IF l.first_seq > l.last_seq THEN
        RETURN;
    END IF;
    FOR p IN
        SELECT seq, owner, inbox, stance, claim, expires FROM leasehold.places
        WHERE key = l.key AND seq >= l.first_seq ORDER BY seq LIMIT 9
    LOOP
        is_alive := p.expires > at;
        is_hidden := NOT is_alive AND dead = 8;
        IF is_alive OR is_hidden THEN
            head_seq := p.seq;
            head_owner := p.owner;
            head_inbox := p.inbox;
            head_stance := p.stance;
            head_claim := p.claim;
            EXIT;
        END IF;
        dead := dead + 1;
    END LOOP;
    head_seq := coalesce(head_seq, l.last_seq + 1);
    IF dead > 0 THEN
        DELETE FROM leasehold.places
        WHERE key = l.key AND seq >= l.first_seq AND seq < head_seq;
        l.waiting := l.waiting - dead;
    END IF;
    l.first_seq := head_seq;
END
$$;

-- Makes the head of the line an owner, and tells it. The head is at `first_seq`.
CREATE OR REPLACE FUNCTION leasehold.hand_over(l leasehold.locks, at bigint)
RETURNS leasehold.locks LANGUAGE plpgsql AS $$
DECLARE
    p leasehold.places;
    g record;
BEGIN
    DELETE FROM leasehold.places WHERE key = l.key AND seq = l.first_seq RETURNING * INTO p;
    l.first_seq := l.first_seq + 1;
    l.waiting := l.waiting - 1;
    g := leasehold.grant_to(l, at, p.owner, p.claim, p.handed_ttl, p.reserve, p.why);
    PERFORM leasehold.mail(p.inbox, concat_ws(
        ' ', 'granted', p.ask_no, coalesce(g.fence_first, 0), coalesce(g.fence_count, 0), p.owner,
        l.key));
    RETURN g.l;
END
$$;

-- Hands the key to all waiters at the front of the line whose turn it is. If there are too many for
-- one step, tells the next of them to ask.
CREATE OR REPLACE FUNCTION leasehold.hand_over_run(l leasehold.locks, at bigint)
RETURNS leasehold.locks LANGUAGE plpgsql AS $$
DECLARE
    f record;
BEGIN
    l := leasehold.bury(l, at);
    FOR handed IN 0..64 LOOP
        f := leasehold.front(l, at);
        l := f.l;
        EXIT WHEN NOT f.is_alive OR f.head_stance <> 0
            OR NOT leasehold.admits(l, at, f.head_claim);
        IF handed = 64 THEN
            PERFORM leasehold.mail(f.head_inbox, 'free ' || l.key);
        ELSE
            l := leasehold.hand_over(l, at);
        END IF;
        -- A holder that has the key alone excludes every other grant.
        EXIT WHEN f.head_claim = 0;
    END LOOP;
    RETURN l;
END
$$;
