-- hand_over_at_once.lua: hands the key to the head of the line. The head must be alive, must have
-- joined, and must want fencing tokens, of which the clock is the last. Does the same as
-- `hand_over` of line.lua, but without functions, because a waiter waits for this step.
-- release.lua answers all other requests.
-- KEYS, ARGV, replies  as release_at_once.lua says
local hands_over = ARGV[2] ~= 'wake' and ARGV[2] ~= 'share' and ARGV[6] ~= 'wake'
local may_hand_over = is_held and has_line and hands_over
local heads = may_hand_over and call('ZRANGE', LINE, '0', '1') or {}
if heads[1] then
  local head = heads[1]
  local ends, handed_ttl, ask_no, reserve, inbox, why = string.match(
    call('HGET', PLACES, head) or '',
    '^j|(%d+)|(%d+)|(%d+)|([1-9]%d*)|%d+|([^|]*)|(.*)$'
  )
  local time = call('TIME')
  local now_us = time[1] * 1000000 + time[2]
  local counter = tonumber(string.match(call('GET', FENCE) or '', '^[1-9]%d*$'))
  local is_living = ends and tonumber(ends) * 1000 > now_us
  local leaps = counter and counter < now_us and now_us <= FENCING_MAX
  -- An opening is not due yet: the end of its field is near, but not past.
  local due_us = may_open and tonumber(string.match(call('GET', OPEN) or '', '^%d+') or 0) * 1000
  local is_early = not may_open or (due_us > now_us and due_us < now_us + OPENS_WITHIN_MS * 1000)
  if is_living and leaps and is_early and tonumber(handed_ttl) <= FENCE_IDLE_MS then
    if heads[2] then
      call('ZREM', LINE, head)
      call('ZREM', ENDS, head)
      call('HDEL', PLACES, head)
      call('DEL', GRANT)
    else
      call('DEL', GRANT, LINE, ENDS, PLACES)
    end
    local last = string.format('%.0f', now_us)
    local first, count = last, '1'
    if reserve ~= '1' then
      local number = math.min(tonumber(reserve), now_us - counter, LEAP_MAX)
      first, count = string.format('%.0f', now_us - number + 1), string.format('%.0f', number)
    end
    call('SET', FENCE, last, 'PX', FENCE_IDLE)
    if why ~= '' or count ~= '1' then
      call('HSET', GRANT, 'o', head, 'f', first, 'n', count, 's', last, 'w', why)
      if type(redis.pcall('PEXPIRE', GRANT, handed_ttl)) ~= 'number' then
        call('DEL', GRANT)
      end
    end
    call('SET', LOCK, head, 'PX', handed_ttl)
    local hint = 'g ' .. ask_no .. ' ' .. first .. ' ' .. count .. ' ' .. head .. ' ' .. LOCK
    local told = 0
    if string.sub(inbox, 1, 1) == '{' then
      told = redis.pcall('SPUBLISH', ':lh:inbox:' .. inbox, hint)
    end
    if told == 0 or type(told) == 'table' then
      told = redis.pcall('PUBLISH', ':lh:inbox:' .. string.sub(inbox, -12), hint)
    end
    if type(told) == 'number' then
      return 2
    end
    return { 2, 1 }
  end
end
