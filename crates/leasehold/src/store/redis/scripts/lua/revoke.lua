-- revoke.lua: asks a holder to let go, if its owner is still the given one. Changes no lease.
-- KEYS  lock, fence, grant, line, ends, places, shares, open
-- ARGV  the owner token that was seen, any bytes; and the request: by|reason
-- replies  {1} the holder is asked, by this request or by an earlier one
--          {0} the key has another owner now
local seen = ARGV[1]
local holder = call('GET', LOCK)
local shares = is_mark(holder) and open_shares(holder)
local request = whole(now_us()) .. '|' .. ARGV[2]

if shares and shares.has(seen) then
  if not shares.request(seen) then
    shares.ask(seen, request)
  end
  return { 1 }
end
if shares or holder ~= seen then
  -- As in renew.lua, a replica refuses this.
  call('HDEL', GRANT, '')
  return { 0 }
end

local first, count, _, earlier = block_of(seen)
if earlier then
  return { 1 }
end
-- Name the owner, because the next change of the note deletes a note that does not. Do not name a
-- foreign owner: it never changes a note, and would be shown with the last fencing token.
if #seen == 35 and string.match(seen, '^[%w_%-]+%.[%w_%-]+$') then
  is_noted(seen)
  call('HSET', GRANT, 'o', seen, 'f', whole(first), 'n', count)
end
call('HSET', GRANT, 'r', seen, 'q', request)
-- A lease of a foreign client may have no end.
local left = call('PTTL', LOCK)
expire(GRANT, left > 0 and whole(left) or FENCE_IDLE)
return { 1 }
