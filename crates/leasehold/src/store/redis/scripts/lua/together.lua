-- together.lua: the steps that acquire_at_once.lua and release_at_once.lua do first, at several
-- locks. A step that is not done changes nothing, and its client asks for it alone.
-- KEYS  for each step: lock; fence to acquire it, or grant to release it; line, open
-- ARGV  for each step: owner token; ttl_ms to acquire the lock, or 0 to release it
-- replies  for each step: the fencing token, or 1 for freed, or 0 for not done, or -1 for not done
--          because there is no fence
-- No call may raise an error, which would leave the steps before it without an answer.
local FENCE_IDLE_MS, FENCE_IDLE = 600000, '600000'
local FENCING_MAX = 9007199254740991
local call = redis.pcall
local done = {}

for step = 1, #ARGV / 2 do
  local LOCK, FENCE, LINE, OPEN = unpack(KEYS, step * 4 - 3, step * 4)
  local owner, ttl = ARGV[step * 2 - 1], ARGV[step * 2]
  done[step] = 0
  if ttl == '0' then
    local GRANT = FENCE
    if call('GET', LOCK) == owner and call('EXISTS', LINE, OPEN) == 0
      and type(call('DEL', LOCK, GRANT)) == 'number' then
      done[step] = 1
    end
  else
    -- EXISTS counts the fence three times. So less than 3 means that the fence is missing.
    local found = call('EXISTS', FENCE, FENCE, FENCE, LINE, OPEN)
    local set = found == 3 and call('SET', LOCK, owner, 'NX', 'PX', ttl)
    if type(found) == 'number' and found < 3 then
      done[step] = -1
    elseif type(set) == 'table' and set.ok then
      local counter = call('INCR', FENCE)
      if type(counter) == 'number' then
        local idle = tonumber(ttl) > FENCE_IDLE_MS and ttl or FENCE_IDLE
        local in_range = counter > 1 and counter <= FENCING_MAX
        if in_range and type(call('PEXPIRE', FENCE, idle)) == 'number' then
          done[step] = counter
        else
          call('DECR', FENCE)
        end
      end
      if done[step] == 0 then
        call('DEL', LOCK)
      end
    end
  end
end
return done
