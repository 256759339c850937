-- acquire.lua: grants the key, or puts the client in line, if acquire_at_once.lua did not answer.
-- Decides like `decide_ask` in core/line.rs.
-- KEYS, ARGV, replies  as acquire_at_once.lua says

local reserve, cold = tonumber(ARGV[3]), ARGV[4] == '1'
local stance, waiter_ttl, handed_ttl, ask_no, inbox =
  string.match(ARGV[6] or '', '^([jw])|(%d+)|(%d+)|(%d+)|(.*)$')

-- The lock is written last: an error on the way grants nothing.
local function grant(line)
  local first, count = take(reserve, cold)
  if reserve > 0 and count == 0 then
    return { 7 }
  end
  if count > 0 then
    keep_counter(ttl)
  end
  -- A start without a reason is noted only when the client meets the key for the first time.
  call('DEL', GRANT)
  note_grant(owner, ttl, first, count, (cold or why ~= '-') and why or '')
  if line then
    line.remove({ owner })
  end
  call('SET', LOCK, owner, 'PX', ARGV[2])
  return { 1, first, count }
end

if not holder and call('EXISTS', LINE) == 0 then
  return grant()
end

if holder == owner then
  local first, count = block_of(owner)
  local lease_ms, lease = lift(ttl)
  call('PEXPIRE', GRANT, lease)
  if count > 0 then
    keep_counter(lease_ms)
  end
  return { 1, first, count }
end

local function ahead()
  return call('ZRANK', LINE, owner) or call('ZCARD', LINE)
end

-- In its last millisecond, a lease has no time left. Zero would mean that asking at once may help.
local function lease_left()
  local left = call('PTTL', LOCK)
  return left < 0 and -1 or math.max(left, 1)
end

-- The client in an owner token of ours, which has 22 characters, a dot, and 12 characters.
local function client_of(token)
  local client = string.match(token, '^[A-Za-z0-9_%-]+%.([A-Za-z0-9_%-]+)$')
  return client and #client == 12 and #token == 35 and client or ''
end

if holder and not stance then
  return { 0, lease_left(), ahead(), '', 0 }
end

local line = open_line()
local is_new = false
if stance then
  local asked = {
    stance = stance,
    handed_ttl = handed_ttl,
    ask_no = tonumber(ask_no),
    reserve = ARGV[3],
    inbox = inbox,
    why = why,
  }
  is_new = line.enter(owner, asked, tonumber(waiter_ttl))
  if is_new == nil then
    return { 2 }
  end
end

local head, place = line.front()
if holder then
  local client = client_of(holder)
  if client == '' then
    return { 0, lease_left(), ahead(), '?', 0 }
  end
  if not is_new then
    return { 0, lease_left(), ahead(), '', 0 }
  end
  -- Clients of one node have channels with the same tag.
  local tag = string.match(inbox, '^{%d+}') or ''
  return { 0, lease_left(), ahead(), client, tell(tag .. client, 'w ' .. LOCK) }
end
if head == UNEXAMINED then
  return { 0, 0, ahead(), '', 0 }
end
local is_behind = head ~= NOBODY and place.owner ~= owner
-- A strict request, which has an epoch, hands nothing over: waiters that joined a line here have
-- other terms.
if is_behind and head == JOINED and not EPOCH and place.reserve > 0 and is_at_its_end() then
  -- The head gets the error when it asks.
  return { 0, GIVES_WAY_MS, ahead(), '', line.wake(place) }
end
if is_behind and head == JOINED and not EPOCH then
  local denied = line.hand_over(place)
  return { 0, place.handed_ttl, ahead(), '', denied }
end
if is_behind and is_new and call('HGET', GRANT, 'a') then
  return { 0, GIVES_WAY_MS, ahead(), '', 0 }
end
return grant(line)
