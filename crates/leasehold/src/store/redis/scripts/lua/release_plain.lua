-- release_plain.lua: ends the lease of an owner on a lock without companion keys.
-- KEYS  lock
-- ARGV  owner token
-- replies  {0} not held
--          1 freed
local call = redis.call
local LOCK = unpack(KEYS)

if call('GET', LOCK) ~= ARGV[1] then
  return { 0 }
end
return call('DEL', LOCK)
