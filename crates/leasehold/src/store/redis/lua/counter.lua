-- counter.lua: the server's time, and the fencing counter.
-- KEYS  fence
-- ARGV  none of its own
-- replies  none of its own

-- Numbers beyond 14 digits lose some where Lua turns them into text by itself, and a command takes
-- twice as long with a number as with text.
local function whole(number)
  return string.format('%.0f', number)
end

local clock
local function now_us()
  if not clock then
    local time = call('TIME')
    clock = time[1] * 1000000 + time[2]
  end
  return clock
end

-- The highest number given so far; 0 where it was forgotten, or is no number.
local function counted()
  return tonumber(string.match(call('GET', FENCE) or '', '^[1-9]%d*$') or 0)
end

-- Whether no number is left that all who are given one can tell from the next. No clock is so far,
-- so somebody has written the counter.
local function is_at_its_end()
  return counted() >= FENCING_MAX
end

-- Gives a key that was just written its end. Who has no right to leaves no key without one.
local function expire(key, ms)
  local expired = redis.pcall('PEXPIRE', key, ms)
  if type(expired) == 'table' and expired.err then
    if call('PTTL', key) == -1 then
      call('DEL', key)
    end
    -- The same error once more, for the caller.
    call('PEXPIRE', key, ms)
  end
end

-- The counter outlives the lease, and what is in flight when it ends.
local function keep_counter(lease_ms)
  call('PEXPIRE', FENCE, lease_ms > FENCE_IDLE_MS and whole(lease_ms) or FENCE_IDLE)
end

-- As far as a block may begin before the clock: a millisecond, in which no server comes back.
local LEAP_MAX = 1000

-- Raises the counter to the clock, or by one where it is ahead of that: higher than whatever was
-- given before it was set back. The block ends there, since none must run ahead of the clock. Where
-- the counter is missing it is one number: that may have been deleted this very moment.
local function leap(reserve)
  local counter = counted()
  local last = math.max(counter + 1, now_us())
  if last > FENCING_MAX then
    return 0, 0
  end
  local count = counter == 0 and 1 or math.min(reserve, last - counter, LEAP_MAX)
  call('SET', FENCE, whole(last), 'PX', FENCE_IDLE)
  return last - count + 1, count
end

-- Reserves up to `reserve` fencing tokens. `cold`: the counter may have been forgotten or set back
-- since it was used last. Whoever calls this calls `keep_counter` after it.
local function take(reserve, cold)
  if reserve == 0 then
    return 0, 0
  end
  if cold then
    return leap(reserve)
  end
  local counter = counted()
  if counter == 0 then
    return leap(reserve)
  end
  local count = reserve == 1 and 1 or math.min(reserve, math.max(1, now_us() - counter))
  if counter + count > FENCING_MAX then
    return 0, 0
  end
  call('INCRBY', FENCE, whole(count))
  return counter + 1, count
end
