-- leave_at_once.lua: ends a share of a key, if nobody waits and nothing is noted about the holders.
-- Does the same as `leave` of shares.lua, but without functions. release.lua answers all other
-- requests.
-- KEYS, ARGV, replies  as release_at_once.lua says
if holder == SHARED and not has_line and not keep_ttl and call('EXISTS', GRANT) == 0 then
  local rank = call('ZRANK', SHARES, owner)
  local last = rank and call('ZCARD', SHARES) - 1
  -- The lock ends with the last of its shares. So if there is only one share, it is alive. A share
  -- that is not the last to end does not change the end of the lock.
  if last == 0 then
    call('DEL', LOCK, SHARES)
    return 1
  end
  if rank and rank < last then
    local time = call('TIME')
    local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
    if tonumber(call('ZSCORE', SHARES, owner)) >= now_ms then
      call('ZREM', SHARES, owner)
      return 1
    end
  end
end
if not has_line and not is_held and call('EXISTS', SHARES) == 0 then
  -- Writes nothing, but a replica refuses it. A replica with old data must not say that the lease
  -- is gone.
  call('HDEL', GRANT, '')
  return { 0 }
end

