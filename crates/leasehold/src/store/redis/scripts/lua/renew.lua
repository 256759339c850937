-- renew.lua: restarts the time to live if the owner still holds the key. Never re-creates a lease.
-- KEYS  lock, fence, grant, line, ends, places, shares, open
-- ARGV  owner token, ttl_ms, reserve, at_least (0 for none), cold, idle (1 or 0 each)
-- replies  {1, first, count, wanted} renewed; wanted: 1 if another client waits. If the counter was
--            raised to at_least, the first and count that the lease had before come after it. If
--            the owner was asked to let go, the request comes last: at_us|by|reason
--          {0} lost
local owner, ttl, reserve = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local at_least, cold, idle = tonumber(ARGV[4]), ARGV[5] == '1', ARGV[6] == '1'

local holder = call('GET', LOCK)
local shares = is_mark(holder) and open_shares(holder)
local is_shared = shares and shares.has(owner)
if holder ~= owner and not is_shared then
  -- Writes nothing, but a replica refuses it. A replica with old data must not say that the lease
  -- is gone.
  call('HDEL', GRANT, '')
  return { 0 }
end

local function wanted()
  if call('EXISTS', ENDS) == 0 then
    return 0
  end
  local now_ms = math.floor(now_us() / 1000)
  return call('ZCOUNT', ENDS, '(' .. whole(now_ms), '+inf') > 0 and 1 or 0
end

-- No share is raised to `at_least`, because that comes from a quorum, and a quorum shares no keys.
if is_shared then
  local first, count, request = shares.lift(owner, ttl)
  local reserved_first, reserved = take(reserve, cold)
  if reserved > 0 then
    first, count = reserved_first, reserved
    shares.note_block(owner, first, count)
  end
  if count > 0 then
    keep_counter(ttl)
  end
  return { 1, first, count, wanted(), request or nil }
end

local first, count, was_idle, request = block_of(owner)
local lease_ms, lease = lift(ttl)
local reply = { 1 }
if at_least > 0 and at_least > counted() then
  reply[5], reply[6] = first, count
  call('SET', FENCE, whole(at_least), 'PX', FENCE_IDLE)
  first, count = at_least, 1
  note_block(owner, first, count)
end
local reserved_first, reserved = take(reserve, cold)
if reserved > 0 then
  first, count = reserved_first, reserved
  note_block(owner, first, count)
end
if idle ~= was_idle then
  note_idle(owner, first, count, idle)
end
call('PEXPIRE', GRANT, lease)
if count > 0 then
  keep_counter(lease_ms)
end

reply[2], reply[3], reply[4] = first, count, wanted()
if request then
  reply[#reply + 1] = request
end
return reply
