-- share_at_once.lua: grants a share of a key that is free or shared, if nobody waits and nothing is
-- noted about the holders. Does the same as `grant` of shares.lua, but without functions.
-- acquire.lua answers all other requests.
-- KEYS, ARGV, replies  as acquire_at_once.lua says
if wish == 's' and ARGV[3] == '0' and ARGV[4] == '0' and (why == '' or why == '-') then
  -- EXISTS counts the shares four times. So 4 means that the shares exist, and no notes, line or
  -- openings do.
  local beside = call('EXISTS', SHARES, SHARES, SHARES, SHARES, GRANT, LINE, OPEN)
  local is_free = not holder and beside == 0
  if is_free or (holder == SHARED and beside == 4) then
    local time = call('TIME')
    local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
    local ends = string.format('%.0f', now_ms + ttl)
    if is_free then
      -- The lock is written last, so that an error on the way grants nothing.
      call('ZADD', SHARES, ends, owner)
      if type(redis.pcall('PEXPIRE', SHARES, ARGV[2])) == 'number' then
        call('SET', LOCK, SHARED, 'PX', ARGV[2])
        return 0
      end
      call('DEL', SHARES)
    elseif
      -- acquire.lua forgets dead holders, and repeats the answer to a living one.
      call('ZCOUNT', SHARES, SCORE_MIN, string.format('(%.0f', now_ms)) == 0
      and not call('ZSCORE', SHARES, owner)
    then
      local kept_ms, lock_ms = call('PTTL', SHARES), call('PTTL', LOCK)
      call('ZADD', SHARES, ends, owner)
      if
        (kept_ms >= ttl or type(redis.pcall('PEXPIRE', SHARES, ARGV[2])) == 'number')
        and (lock_ms >= ttl or type(redis.pcall('PEXPIRE', LOCK, ARGV[2])) == 'number')
      then
        return 0
      end
      -- acquire.lua gives the error.
      call('ZREM', SHARES, owner)
    end
  end
end

