-- grant.lua: details about the holder; shared by scripts that grant or renew.
-- KEYS  grant, fence
-- ARGV  none of its own
-- replies  none of its own

-- Notes the start, the reason and the fencing tokens, if the lock and the counter do not show them.
-- Most grants need no note, because they have one fencing token, which is the counter, and no
-- reason.
local function note_grant(owner, ttl_ms, first, count, why)
  -- If there is a counter, a holder without a note would count as the owner of the last token.
  if why ~= '' or count > 1 or (count == 0 and call('EXISTS', FENCE) == 1) then
    call('HSET', GRANT, 'o', owner, 'f', whole(first), 'n', count, 's', whole(now_us()), 'w', why)
    expire(GRANT, whole(ttl_ms))
  end
end

-- Whether there is a note about this holder. Deletes a note about another holder.
local function is_noted(owner)
  if call('HGET', GRANT, 'o') == owner then
    return true
  end
  call('DEL', GRANT)
  return false
end

-- Notes the new fencing tokens of the holder. The caller sets the time to live afterwards.
local function note_block(owner, first, count)
  if is_noted(owner) or count ~= 1 then
    call('HSET', GRANT, 'o', owner, 'f', whole(first), 'n', count)
  end
end

-- Notes the new owner token of the holder, and its new fencing tokens. Forgets the request to let
-- go, because the client may use the old token again. The caller sets the time to live afterwards.
local function bequeath(owner, heir, first, count)
  if is_noted(owner) or count ~= 1 then
    call('HSET', GRANT, 'o', heir, 'f', whole(first), 'n', count)
    call('HDEL', GRANT, 'i', 'r', 'q')
  end
end

-- Notes whether the holder keeps the lease with no guard in use. The caller sets the time to live
-- afterwards.
local function note_idle(owner, first, count, idle)
  if not idle then
    call('HDEL', GRANT, 'i')
    return
  end
  is_noted(owner)
  call('HSET', GRANT, 'o', owner, 'f', whole(first), 'n', count, 'i', '1')
end

-- Returns the fencing tokens of the holder (none if the counter was forgotten), whether the holder
-- is idle, and the request to let go that it got, or false.
local function block_of(owner)
  local counter = counted()
  local noted = call('HMGET', GRANT, 'o', 'f', 'n', 'i', 'r', 'q')
  local is_ours = noted[1] == owner
  local is_idle = is_ours and noted[4] == '1'
  local request = noted[5] == owner and noted[6]
  if counter == 0 or counter > FENCING_MAX then
    return 0, 0, is_idle, request
  end
  if is_ours then
    local first, count = tonumber(noted[2]) or 0, tonumber(noted[3]) or 0
    -- The note of an earlier lease of the same owner ends below the counter.
    if count == 0 or first + count - 1 == counter then
      return first, count, is_idle, request
    end
  end
  return counter, 1, is_idle, request
end

-- Restarts the time to live, and never shortens it. The lock comes first, because at the server's
-- memory limit a script must not begin with SET or INCR. A script that has begun to write may go
-- on. Returns the time left, as a number and as text.
local function lift(ttl_ms)
  local lease_ms = math.max(call('PTTL', LOCK), ttl_ms)
  local lease = whole(lease_ms)
  call('PEXPIRE', LOCK, lease)
  return lease_ms, lease
end
