-- counter.lua: the server's time, and the fencing counter.
-- KEYS  fence
-- ARGV  none of its own
-- replies  none of its own

-- Lua itself turns numbers with more than 14 digits into text without their last digits. A command
-- also takes twice as long with a number as with text.
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

-- The highest number given so far; 0 if the counter is missing or is not a number.
local function counted()
  return tonumber(string.match(call('GET', FENCE) or '', '^[1-9]%d*$') or 0)
end

-- Whether the counter has no exact higher number left. No clock is that far ahead, so somebody else
-- has written the counter.
local function is_at_its_end()
  return counted() >= FENCING_MAX
end

-- Sets the time to live of a key that was just written. If that is forbidden, deletes a key that
-- would never expire.
local function expire(key, ms)
  local expired = redis.pcall('PEXPIRE', key, ms)
  if type(expired) == 'table' and expired.err then
    if call('PTTL', key) == -1 then
      call('DEL', key)
    end
    -- Raises the same error again, for the caller.
    call('PEXPIRE', key, ms)
  end
end

-- The counter outlives the lease and all requests under way at its end.
local function keep_counter(lease_ms)
  call('PEXPIRE', FENCE, lease_ms > FENCE_IDLE_MS and whole(lease_ms) or FENCE_IDLE)
end

-- Raises the counter to the clock, or by one if it is ahead of the clock. The result is higher than
-- any number that was given before the counter was set back. The block ends at the clock, because
-- no number may run ahead of it. Without a counter, the block has one number, because the counter
-- may have just been deleted.
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

-- Reserves up to `reserve` fencing tokens. `cold`: since its last use, the counter may have been
-- forgotten or set back. Call `keep_counter` afterwards.
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
