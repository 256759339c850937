-- acquire_at_once.lua: grants a free key for which nobody waits, if there is nothing to write down
-- but the lock and the counter. Comes before all functions, since such an ask needs none, and to
-- make them would take as long as a command. Every other ask is answered by acquire.lua.
-- KEYS  lock, fence, grant, line, ends, places
-- ARGV  owner token, ttl_ms, reserve, cold (1 or 0), why (`=` and the text; `-` for
--       none; '' if the asker says nothing of itself)
--       and, if the asker takes a place: stance|waiter_ttl_ms|handed_ttl_ms|ask_no|inbox, stance
--       being j (joins) or w (watches)
-- replies  fencing token, or 0 for none: granted. A number, since an array takes the server longer
--            than a command
--          {1, first, count} granted
--          {0, retry_in_ms (-1: the lease has no end), ahead, holder, denied} taken; holder: the
--            client that holds it, if the place is new, and `?` if it is none of ours; denied: 1 if
--            the hint for another client was not allowed
--          {2} the line is full
--          {7} the fencing counter has come to its end: nothing was granted
local owner, ttl, why = ARGV[1], tonumber(ARGV[2]), ARGV[5]

local is_plain = ARGV[4] == '0' and (why == '' or why == '-')
-- Counted twice, so that 2 is: the counter is there, and the line is not. A counter that is missing
-- is not begun here: refused in the middle, the step would leave it behind.
if is_plain and ARGV[3] == '1' and call('EXISTS', FENCE, FENCE, LINE) == 2 then
  -- Text is handed on as it is; a number would be turned into it, at the price of a command.
  if call('SET', LOCK, owner, 'NX', 'PX', ARGV[2]) then
    local counter = redis.pcall('INCR', FENCE)
    if type(counter) == 'number' then
      local idle = ttl > FENCE_IDLE_MS and ARGV[2] or FENCE_IDLE
      local in_range = counter > 1 and counter <= FENCING_MAX
      if in_range and type(redis.pcall('PEXPIRE', FENCE, idle)) == 'number' then
        return counter
      end
      call('DECR', FENCE)
    end
    -- The counter has come to its end, or may not be used: acquire.lua goes on from what was.
    call('DEL', LOCK)
  end
elseif is_plain and ARGV[3] == '0' and call('EXISTS', LINE, FENCE) == 0 then
  if call('SET', LOCK, owner, 'NX', 'PX', ARGV[2]) then
    return 0
  end
end
local holder = call('GET', LOCK)
