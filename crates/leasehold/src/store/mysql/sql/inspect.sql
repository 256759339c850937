-- The state of a key, for people and tools: a row about the key, then up to 100 holders, then up to
-- 100 waiters. There is no row if the key is not known.
--
-- In the row about the key, `fence_count` is how many wait, `claim` how many permits there are,
-- `ttl` how many of them are taken, and `fence_first` the counter.
CREATE PROCEDURE leasehold_inspect(the_key VARBINARY(512))
SQL SECURITY INVOKER
BEGIN
    DECLARE now_us BIGINT;
    CALL leasehold_clock(now_us);
    (SELECT 'key' AS kind, NULL AS token, l.permits AS claim, 0 AS since,
        (SELECT COALESCE(SUM(s.claim), 0) FROM leasehold_shares s
            WHERE s.name = the_key AND s.expires > now_us AND s.claim > 0) AS ttl,
        0 AS ttl_left, l.counter AS fence_first,
        (SELECT COUNT(*) FROM leasehold_places p WHERE p.name = the_key AND p.seq >= l.first_seq
            AND p.expires > now_us) AS fence_count,
        NULL AS why, FALSE AS idle, NULL AS revoked, NULL AS host, NULL AS pid, NULL AS username,
        NULL AS command
    FROM leasehold_locks l WHERE l.name = the_key)
    UNION ALL
    (SELECT 'holder', l.owner, 0, l.since, l.ttl, l.expires - now_us, l.fence_first, l.fence_count,
        l.why, l.idle, IF(l.revoked_owner = l.owner, l.revoked, NULL), c.host, c.pid, c.username,
        c.command
    FROM leasehold_locks l LEFT JOIN leasehold_clients c ON c.id = SUBSTR(l.owner, 24)
    WHERE l.name = the_key AND l.owner IS NOT NULL AND l.expires > now_us)
    UNION ALL
    (SELECT 'holder', s.owner, s.claim, s.since, s.ttl, s.expires - now_us, s.fence_first,
        s.fence_count, s.why, FALSE, s.revoked, c.host, c.pid, c.username, c.command
    FROM leasehold_shares s LEFT JOIN leasehold_clients c ON c.id = SUBSTR(s.owner, 24)
    WHERE s.name = the_key AND s.expires > now_us ORDER BY s.expires LIMIT 100)
    UNION ALL
    (SELECT 'waiter', p.owner, p.claim, p.since, 0, p.expires - now_us, NULL, NULL, p.why, FALSE,
        NULL, c.host, c.pid, c.username, c.command
    FROM leasehold_places p JOIN leasehold_locks l ON l.name = p.name
    LEFT JOIN leasehold_clients c ON c.id = SUBSTR(p.owner, 24)
    WHERE p.name = the_key AND p.seq >= l.first_seq AND p.expires > now_us
    ORDER BY p.seq LIMIT 100);
END
//
