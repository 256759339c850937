-- grant.lua: what is known of the holder beside its token; shared by what grants and renews.
-- KEYS  grant, fence
-- ARGV  none of its own
-- replies  none of its own

-- Writes down, where nothing is yet, what the lock does not say: since when, why, and which fencing
-- tokens. Most grants have nothing to say: one fencing token, which is the counter, and no reason.
local function note_grant(owner, ttl_ms, first, count, why)
  -- Beside a counter, a holder without fencing tokens would be taken for one that has the last.
  if why ~= '' or count > 1 or (count == 0 and call('EXISTS', FENCE) == 1) then
    call('HSET', GRANT, 'o', owner, 'f', whole(first), 'n', count, 's', whole(now_us()), 'w', why)
    expire(GRANT, whole(ttl_ms))
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

-- Notes that the holder has another token now, and other fencing tokens. Whoever calls this sets
-- the time to live after it.
local function bequeath(owner, heir, first, count)
  if is_noted(owner) or count ~= 1 then
    call('HSET', GRANT, 'o', heir, 'f', whole(first), 'n', count)
    call('HDEL', GRANT, 'i')
  end
end

-- Notes whether the holder keeps the lease with no guard in use. Whoever calls this sets the time
-- to live after it.
local function note_idle(owner, first, count, idle)
  if not idle then
    call('HDEL', GRANT, 'i')
    return
  end
  is_noted(owner)
  call('HSET', GRANT, 'o', owner, 'f', whole(first), 'n', count, 'i', '1')
end

-- The fencing tokens of the holder, none where the counter was forgotten; and whether it is noted
-- as idle.
local function block_of(owner)
  local counter = counted()
  local noted = call('HMGET', GRANT, 'o', 'f', 'n', 'i')
  local is_ours = noted[1] == owner
  local is_idle = is_ours and noted[4] == '1'
  if counter == 0 or counter > FENCING_MAX then
    return 0, 0, is_idle
  end
  if is_ours then
    local first, count = tonumber(noted[2]) or 0, tonumber(noted[3]) or 0
    -- What was left behind by an earlier lease of the same owner ends below the counter.
    if count == 0 or first + count - 1 == counter then
      return first, count, is_idle
    end
  end
  return counter, 1, is_idle
end

-- Restarts the time to live, and never shortens it. The lock comes first: a script that has begun
-- to write may go on at the server's memory limit, where SET and INCR could not begin. Returns what
-- is left, as a number and as text.
local function lift(ttl_ms)
  local lease_ms = math.max(call('PTTL', LOCK), ttl_ms)
  local lease = whole(lease_ms)
  call('PEXPIRE', LOCK, lease)
  return lease_ms, lease
end
