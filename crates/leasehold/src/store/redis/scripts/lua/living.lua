-- living.lua: checks whether anybody holds a key or waits for it. Writes nothing.
-- KEYS  lock, fence, grant, line, ends, places, shares, open
-- ARGV  none
-- replies  1 | 0
if call('EXISTS', LOCK) == 1 then
  return 1
end
local now_ms = math.floor(now_us() / 1000)
return call('ZCOUNT', ENDS, '(' .. whole(now_ms), '+inf') > 0 and 1 or 0
