-- acquire.lua: grants the key, or puts the asker in line, where acquire_at_once.lua did not answer.
-- Decides as `decide_ask` in core/line.rs.
-- KEYS, ARGV, replies  as acquire_at_once.lua says

local reserve, cold = tonumber(ARGV[3]), ARGV[4] == '1'

-- The lock is written last: an error on the way grants nothing.
local function grant(line)
  local first, count = take(reserve, cold)
  if count > 0 then
    keep_counter(ttl)
  end
  -- Since when is worth a note where the key is met for the first time, and not each time.
  note_grant(owner, ttl, first, count, (cold or why ~= '-') and why or '')
  if line then
    line.remove({ owner })
  end
  call('SET', LOCK, owner, 'PX', ttl)
  return { 1, first, count }
end

if not holder and call('EXISTS', LINE) == 0 then
  return grant()
end

if holder == owner then
  local first, count = block_of(owner)
  local lease_ms = lift(ttl)
  call('PEXPIRE', GRANT, lease_ms)
  if count > 0 then
    keep_counter(lease_ms)
  end
  return { 1, first, count }
end

local function ahead()
  return call('ZRANK', LINE, owner) or call('ZCARD', LINE)
end

-- In its last millisecond a lease has none left; zero would mean that asking at once may help.
local function lease_left()
  local left = call('PTTL', LOCK)
  return left < 0 and -1 or math.max(left, 1)
end

-- The client that made an owner token, if one of ours did: 22 characters, a dot, 12 characters.
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
  local waiter_ttl, inbox = tonumber(ARGV[7]), ARGV[10]
  local asked = {
    stance = stance,
    handed_ttl = ARGV[8],
    ask_no = tonumber(ARGV[9]),
    reserve = ARGV[3],
    inbox = inbox,
    why = why,
  }
  is_new = line.enter(owner, asked, waiter_ttl)
  if is_new == nil then
    return { 2 }
  end
end

local head, place = line.front()
if holder then
  local client = is_new and client_of(holder) or ''
  local reply = { 0, lease_left(), ahead(), client, 0 }
  if client ~= '' then
    reply[5] = tell(client, 'w ' .. LOCK)
  end
  return reply
end
if head == UNEXAMINED then
  return { 0, 0, ahead(), '', 0 }
end
if head == JOINED and place.owner ~= owner then
  local denied = line.hand_over(place)
  return { 0, place.handed_ttl, ahead(), '', denied }
end
return grant(line)
