-- evict.lua: ends another client's lease if its owner is still the given one.
-- KEYS  lock, fence, grant, line, ends, places
-- ARGV  the owner token that was seen, any bytes; and `wake`, if nothing may be handed over
-- replies  {1, denied} ended; denied: 1 if the user may not publish a hint for another client
--          {0} the key has another owner now
local seen = ARGV[1]
if call('GET', LOCK) ~= seen then
  return { 0 }
end

-- The next fencing token must be above those of the evicted holder, even if this step grants none.
-- Start with a command that is allowed at the server's memory limit: then the later ones are too.
keep_counter(0)
leap(1)
local line = open_line()
line.remove({ seen })
local head, place = line.front()
if head == JOINED and ARGV[2] ~= 'wake' then
  return { 1, line.hand_over(place) }
end
call('DEL', LOCK, GRANT)
return { 1, place and line.wake(place) or 0 }
