-- The state of a key, for people and tools: a row about the key, then up to 100 holders, then up to
-- 100 waiters. There is no row if the key is not known.
--
-- In the row about the key, `fence_count` is how many wait, `claim` how many permits there are,
-- `ttl` how many of them are taken, and `fence_first` the counter.
CREATE OR REPLACE FUNCTION leasehold.inspect(the_key text)
RETURNS TABLE (
    kind text, token text, claim integer, since bigint, ttl bigint, ttl_left bigint,
    fence_first bigint, fence_count bigint, why text, idle boolean, revoked text,
    host text, pid bigint, username text, command text
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    l leasehold.locks;
    at bigint := leasehold.clock();
BEGIN
    -- Somebody may have locked the table.
    PERFORM set_config('lock_timeout', '500', true);
    SELECT * INTO l FROM leasehold.locks WHERE key = the_key;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT 'key', NULL::text, l.permits, 0::bigint,
        coalesce((SELECT sum(s.claim) FROM leasehold.shares s
            WHERE s.key = the_key AND s.expires > at AND s.claim > 0), 0)::bigint,
        0::bigint, l.counter,
        (SELECT count(*) FROM leasehold.places p
            WHERE p.key = the_key AND p.seq >= l.first_seq AND p.expires > at),
        NULL::text, false, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::text;
    IF l.owner IS NOT NULL AND l.expires > at THEN
        RETURN QUERY SELECT 'holder', l.owner, 0, l.since, l.ttl, l.expires - at, l.fence_first,
            l.fence_count::bigint, l.why, l.idle,
            CASE WHEN l.revoked_owner = l.owner THEN l.revoked END,
            c.host, c.pid, c.username, c.command
        FROM (SELECT) AS one LEFT JOIN leasehold.clients c ON c.id = substr(l.owner, 24);
    END IF;
    RETURN QUERY SELECT 'holder', s.owner, s.claim, s.since, s.ttl, s.expires - at, s.fence_first,
        s.fence_count::bigint, s.why, false, s.revoked, c.host, c.pid, c.username, c.command
    FROM (SELECT * FROM leasehold.shares
        WHERE key = the_key AND expires > at ORDER BY expires LIMIT 100) s
    LEFT JOIN leasehold.clients c ON c.id = substr(s.owner, 24) ORDER BY s.expires;
    RETURN QUERY SELECT 'waiter', p.owner, p.claim, p.since, 0::bigint, p.expires - at,
        NULL::bigint, NULL::bigint, p.why, false, NULL::text, c.host, c.pid, c.username, c.command
    FROM (SELECT * FROM leasehold.places
        WHERE key = the_key AND seq >= l.first_seq AND expires > at ORDER BY seq LIMIT 100) p
    LEFT JOIN leasehold.clients c ON c.id = substr(p.owner, 24) ORDER BY p.seq;
END
$$;
