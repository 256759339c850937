-- prelude_plain.lua: the keys of an acquire request for a lock without companion keys.
-- KEYS  lock; and one more for a strict request, see strict.lua
-- ARGV  as each script says
-- replies  as each script says
local call = redis.call
local LOCK, EPOCH = unpack(KEYS)
