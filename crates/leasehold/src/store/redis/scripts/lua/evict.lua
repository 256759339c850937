-- evict.lua: ends another client's lease if its owner is still the given one.
-- KEYS  lock, fence, grant, line, ends, places, shares, open
-- ARGV  the owner token that was seen, any bytes; and `wake`, if nothing may be handed over
-- replies  {1, denied} ended; denied: 1 if the user may not publish a hint for another client
--          {0} the key has another owner now
local seen = ARGV[1]
local holder = call('GET', LOCK)
local shares = open_shares(holder)
local is_one = shares.has(seen)
if not is_one and (is_mark(holder) or holder ~= seen) then
  -- As in renew.lua, a replica refuses this.
  call('HDEL', GRANT, '')
  return { 0 }
end

-- The next fencing token must be above those of the evicted holder, even if this step grants none.
-- Start with a command that is allowed at the server's memory limit. Then the later commands are
-- allowed too.
keep_counter(0)
leap(1)
local line = open_line(shares)
line.remove({ seen })
if is_one then
  shares.leave(seen)
else
  call('DEL', LOCK, GRANT)
  shares.hold_alone(nil)
end
if ARGV[2] ~= 'wake' then
  local handed, denied = line.run(shares.taken())
  if handed > 0 then
    return { 1, denied }
  end
end
local head, place = line.front()
local is_free = call('EXISTS', LOCK) == 0
return { 1, is_free and place and line.wake(place) or 0 }
