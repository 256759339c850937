-- acquire_plain.lua: grants a free key without companion keys, even if others wait in line for it.
-- Does the same as the command that is used for such a lock if the server has it.
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
-- The caller has the key already. Restarts the time to live, and never shortens it. Always writes,
-- so that a request for copies on a new connection has a write to wait for.
call('PEXPIRE', LOCK, string.format('%d', math.max(left, tonumber(ARGV[2]))))
return 0
