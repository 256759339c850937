-- switch.lua: switches the strict mode of a database on or off, unless it is so already.
-- KEYS  epoch, see strict.lua. Only its field `switch` is read and written: who switched it last,
--       as `on` or `off`, the time (ms of the server's clock), the user, and the reason, with
--       blanks between them. A database without the field is not switched on
-- ARGV  `on` or `off`; the user; the reason
-- replies  {1, record} it is switched now
--          {0, record} it was so before; the record is empty if nobody has switched it yet
--          {2} the epoch holds data of another type
local call = redis.call
local EPOCH = unpack(KEYS)
local wanted, who, why = ARGV[1], ARGV[2], ARGV[3]

local before = redis.pcall('HGET', EPOCH, 'switch')
if type(before) == 'table' then
  if string.find(before.err, 'WRONGTYPE', 1, true) then
    return { 2 }
  end
  -- Raises the same error again, because a returned error lacks its code before Redis 7.0.
  call('HGET', EPOCH, 'switch')
end
before = before or ''
local word = string.match(before, '^[^ ]+') or 'off'
if (word ~= 'off') == (wanted == 'on') then
  return { 0, before }
end
local time = call('TIME')
local now_ms = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local record = wanted .. ' ' .. now_ms .. ' ' .. who .. ' ' .. why
call('HSET', EPOCH, 'switch', record)
return { 1, record }
