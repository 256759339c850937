-- resize.lua: changes how many permits a key has, and hands new ones to waiters.
-- KEYS  lock, fence, grant, line, ends, places, shares, open
-- ARGV  how many permits there are from now on
-- replies  {1, before, denied} changed; before: how many there were, or 0 if nobody has said so
--            lately; denied: 1 if the user may not publish a hint for another client
--          {8, 0} the key is in use as a lock
local shares = open_shares(call('GET', LOCK))
if shares.usage(call('EXISTS', LINE) == 1) == 0 then
  return { 8, 0 }
end
local before = shares.limit() or 0
shares.limit_to(tonumber(ARGV[1]))
local line = open_line(shares)
local _, denied = line.run(shares.taken())
-- The next waiter may want more permits than there are now. Let it ask, so that it learns this.
local _, place = line.front()
if place then
  denied = math.max(denied, tell(place.inbox, 'f ' .. LOCK))
end
return { 1, before, denied }
