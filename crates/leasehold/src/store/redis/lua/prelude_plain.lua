-- prelude_plain.lua: what an ask for a lock with nothing beside it begins with: its keys.
-- KEYS  lock; and one more for a strict ask, see strict.lua
-- ARGV  as each script says
-- replies  as each script says
local call = redis.call
local LOCK, EPOCH = unpack(KEYS)
