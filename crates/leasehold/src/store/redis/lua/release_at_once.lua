-- release_at_once.lua: ends the lease of an owner if nobody waits. Comes before all functions,
-- since it needs none, and to make them would take as long as a command. Every other release is
-- answered by release.lua.
-- KEYS  lock, fence, grant, line, ends, places
-- ARGV  owner token and, if the client is to keep the lease where nobody waits: ttl_ms, reserve,
--       cold (1 or 0), the owner token by which it keeps it, and `wake` as below if it is freed
--       where somebody waits;
--       or owner token and `wake`, if the key is to be free in any case and the head told of it
-- replies  {0} not held
--          1 freed. A number, since an array takes the server longer than a command
--          {1, denied} freed; denied: 1 if a hint for another client was not allowed
--          2 handed over
--          {2, denied} handed over
--          {3, first, count} kept
local owner, keep_ttl = ARGV[1], tonumber(ARGV[2])
local is_held = call('GET', LOCK) == owner
local has_line = call('EXISTS', LINE) == 1

if not has_line and not is_held then
  return { 0 }
end
if not has_line and not keep_ttl then
  call('DEL', LOCK, GRANT)
  return 1
end
