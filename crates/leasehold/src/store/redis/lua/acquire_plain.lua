-- acquire_plain.lua: grants a free key with nothing beside it, whoever may wait in line for it, as
-- the command does by which it is asked for where the server has that.
-- KEYS  lock
-- ARGV  owner token, ttl_ms
-- replies  as acquire_at_once.lua says
if call('SET', LOCK, ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 0
end
local left = call('PTTL', LOCK)
if call('GET', LOCK) ~= ARGV[1] then
  return { 0, left < 0 and -1 or math.max(left, 1), 0, '', 0 }
end
-- Its own already: the time to live starts anew, and is never shortened. Written in any case, or
-- who waits for copies on a new connection would wait for nothing.
call('PEXPIRE', LOCK, string.format('%d', math.max(left, tonumber(ARGV[2]))))
return 0
