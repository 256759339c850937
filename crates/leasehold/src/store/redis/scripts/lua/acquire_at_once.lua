-- acquire_at_once.lua: grants a free key without waiters, if the client wants one token or none.
-- Tells a client that takes no place that the key is taken.
-- Comes before all functions, because it needs none, and defining them would take as long as a
-- command. acquire.lua answers all other requests.
-- KEYS  lock, fence, grant, line, ends, places, shares, open
-- ARGV  owner token, ttl_ms, reserve, cold (1 or 0), why (`=` and the text; `-` for
--       none; '' if the client says nothing about itself)
--       and, if the client takes a place: stance|waiter_ttl_ms|handed_ttl_ms|ask_no|inbox, with
--       stance and inbox as in `places`; else '' or nothing
--       and, if the client does not want the key alone: s (to share it), or p and the number of
--       permits that it wants, a slash, and the number of all permits
-- replies  fencing token, or 0 for none: granted. A number, since an array takes the server longer
--            than a command
--          {1, first, count} granted
--          {1, first, count, 1} granted before, by an earlier request with this owner token. The
--            counter was not raised to the clock
--          {0, retry_in_ms (-1: the lease has no end), ahead, holder, denied} taken; holder: if the
--            place is new, the client that holds the key, or `?` if it has other client software;
--            denied: 1 if the user may not publish the hint for another client
--          {2} the line is full
--          {7} the fencing counter has reached its end: nothing was granted by this request
--          {8, of} the key is used as a lock (of = 0), or as a semaphore of so many permits
local owner, ttl, why = ARGV[1], tonumber(ARGV[2]), ARGV[5]

-- A strict request has other arguments there, and never shares.
local wish = not EPOCH and ARGV[7] or nil
local is_plain = not wish and ARGV[4] == '0' and (why == '' or why == '-')
-- EXISTS counts the counter three times. So 3 means that the counter exists, and neither a line nor
-- openings do. A missing counter is not created here, because an error halfway would leave it
-- behind.
if is_plain and ARGV[3] == '1' and call('EXISTS', FENCE, FENCE, FENCE, LINE, OPEN) == 3 then
  -- Lua passes text on as it is. Turning a number into text would take as long as a command.
  if call('SET', LOCK, owner, 'NX', 'PX', ARGV[2]) then
    local counter = redis.pcall('INCR', FENCE)
    local is_counted = type(counter) == 'number'
    if is_counted and counter > 1 and counter <= FENCING_MAX then
      local idle = ttl > FENCE_IDLE_MS and ARGV[2] or FENCE_IDLE
      if type(redis.pcall('PEXPIRE', FENCE, idle)) == 'number' then
        return counter
      end
    end
    -- The counter has reached its end or must not be used. acquire.lua continues from the old
    -- state. The lock is deleted first, so that an error on the way grants nothing.
    call('DEL', LOCK)
    if is_counted then
      call('DECR', FENCE)
    end
  end
elseif is_plain and ARGV[3] == '0' and call('EXISTS', LINE, FENCE, OPEN) == 0 then
  if call('SET', LOCK, owner, 'NX', 'PX', ARGV[2]) then
    return 0
  end
elseif not wish and ARGV[3] == '1' and ARGV[4] == '1' and call('EXISTS', LINE, OPEN) == 0
  and call('SET', LOCK, owner, 'NX', 'PX', ARGV[2]) then
  -- Does the same as `leap` in counter.lua and `note_grant` in grant.lua, with fewer commands.
  local is_done, token = pcall(function()
    local counter, time = call('GET', FENCE), call('TIME')
    local now = time[1] * 1000000 + time[2]
    local last = math.max(tonumber(string.match(counter or '', '^[1-9]%d*$') or 0) + 1, now)
    if last > FENCING_MAX then
      return nil
    end
    local text = string.format('%.0f', last)
    call('SET', FENCE, text, 'PX', ttl > FENCE_IDLE_MS and ARGV[2] or FENCE_IDLE)
    call('DEL', GRANT)
    if why ~= '' then
      local since = string.format('%.0f', now)
      call('HSET', GRANT, 'o', owner, 'f', text, 'n', '1', 's', since, 'w', why)
      call('PEXPIRE', GRANT, ARGV[2])
    end
    return last
  end)
  if is_done and token then
    return token
  end
  -- After this, acquire.lua finds the key free, writes the rest again, and gives the error.
  call('DEL', LOCK, GRANT)
end
local holder = call('GET', LOCK)
-- Answers like acquire.lua for a client that takes no place, if one holder has the key alone.
if holder and holder ~= owner and not wish and holder ~= SHARED and holder ~= PERMITS
  and not string.find(ARGV[6] or '', '|', 1, true) then
  local left = call('PTTL', LOCK)
  local ahead = call('ZRANK', LINE, owner) or call('ZCARD', LINE)
  return { 0, left < 0 and -1 or math.max(left, 1), ahead, '', 0 }
end
