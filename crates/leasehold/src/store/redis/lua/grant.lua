-- grant.lua: what is known of the holder beside its token; shared by what grants and renews.
-- KEYS  grant, fence
-- ARGV  none of its own
-- replies  none of its own

-- Writes down what the lock does not say: since when, why, and which fencing tokens. Most grants
-- have nothing to say: one fencing token, which is the counter, and no reason.
local function note_grant(owner, ttl_ms, first, count, why)
  -- Beside a counter, a holder without fencing tokens would be taken for one that has the last.
  if why ~= '' or count > 1 or (count == 0 and call('EXISTS', FENCE) == 1) then
    call('DEL', GRANT)
    call('HSET', GRANT, 'o', owner, 'f', whole(first), 'n', count, 's', whole(now_us()), 'w', why)
    expire(GRANT, ttl_ms)
  end
end

-- Whether something is noted of this holder. What was noted of another goes.
local function is_noted(owner)
  if call('HGET', GRANT, 'o') == owner then
    return true
  end
  call('DEL', GRANT)
  return false
end

-- Notes that the holder has other fencing tokens now. Whoever calls this sets the time to live
-- after it.
local function note_block(owner, first, count)
  if is_noted(owner) or count ~= 1 then
    call('HSET', GRANT, 'o', owner, 'f', whole(first), 'n', count)
  end
end

-- The fencing tokens of the holder; none where the counter was forgotten.
local function block_of(owner)
  local counter = counted()
  if counter == 0 then
    return 0, 0
  end
  local noted = call('HMGET', GRANT, 'o', 'f', 'n')
  if noted[1] == owner then
    local first, count = tonumber(noted[2]) or 0, tonumber(noted[3]) or 0
    -- What was left behind by an earlier lease of the same owner ends below the counter.
    if count == 0 or first + count - 1 == counter then
      return first, count
    end
  end
  return counter, 1
end

-- Restarts the time to live, and never shortens it. The lock comes first: a script that has begun
-- to write may go on at the server's memory limit, where SET and INCR could not begin.
local function lift(ttl_ms)
  local lease_ms = math.max(call('PTTL', LOCK), ttl_ms)
  call('PEXPIRE', LOCK, lease_ms)
  return lease_ms
end
