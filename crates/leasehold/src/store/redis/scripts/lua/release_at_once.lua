-- release_at_once.lua: ends the lease of an owner if nobody waits. Comes before all functions,
-- because it needs none, and defining them would take as long as a command. release.lua answers all
-- other requests.
-- KEYS  lock, fence, grant, line, ends, places, shares, open
-- ARGV  owner token and, if the client wants to keep the lease while nobody waits: ttl_ms, reserve,
--       cold (1 or 0), the owner token for the kept lease, and perhaps `wake` or `hand` as below,
--       for the case that somebody waits;
--       or owner token and `wake`, to free the key in any case and tell the head of the line;
--       or owner token and `hand`: the line does not stand aside, see open.lua;
--       or owner token, `share`, ttl_ms, and the owner token for the lease that shares the key
-- replies  {0} not held
--          1 freed. A number, since an array takes the server longer than a command
--          {1, denied} freed; denied: 1 if the user may not publish a hint for another client
--          2 handed over
--          {2, denied} handed over
--          {3, first, count} kept
local owner, keep_ttl = ARGV[1], tonumber(ARGV[2])
local holder = call('GET', LOCK)
local is_held = holder == owner
-- EXISTS counts the line twice. 1 means that the line has no places, and may have to stand aside.
local beside = call('EXISTS', LINE, LINE, OPEN)
local has_line = beside >= 2
-- The usual case has no word for this, because the server is slower with each argument.
local may_open = not (keep_ttl and ARGV[6] or not keep_ttl and ARGV[2])

if is_held and beside == 0 and not keep_ttl and ARGV[2] ~= 'share' then
  call('DEL', LOCK, GRANT)
  return 1
end
