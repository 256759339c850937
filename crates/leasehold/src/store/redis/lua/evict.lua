-- evict.lua: ends another's lease if its owner is still the one that was seen.
-- KEYS  lock, fence, grant, line, ends, places
-- ARGV  the owner token that was seen: any bytes; and `wake`, if nothing is handed over
-- replies  {1, denied} ended; denied: 1 if a hint for another client was not allowed
--          {0} the owner is another one by now
local seen = ARGV[1]
if call('GET', LOCK) ~= seen then
  return { 0 }
end

-- Whoever takes a number next must be above the evicted one, even if nobody is granted one before
-- it. First a command that the server's memory limit does not stop: then none is stopped.
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
