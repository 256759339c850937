-- acquire.lua: grants the key, or puts the client in line, if acquire_at_once.lua did not answer.
-- Decides like `decide_ask` in core/line.rs.
-- KEYS, ARGV, replies  as acquire_at_once.lua says

local reserve, cold = tonumber(ARGV[3]), ARGV[4] == '1'
local stance, waiter_ttl, handed_ttl, ask_no, inbox =
  string.match(ARGV[6] or '', '^([jwsp]%d*)|(%d+)|(%d+)|(%d+)|(.*)$')
local claim, of = wish and claim_of(string.match(wish, '^[^/]*')), 0
if type(claim) == 'number' then
  of = tonumber(string.match(wish, '/(%d+)$'))
end
local shares

-- The lock is written last, so that an error on the way grants nothing.
local function grant(line)
  local first, count = take(reserve, cold)
  if reserve > 0 and count == 0 then
    return { 7 }
  end
  if count > 0 then
    keep_counter(ttl)
  end
  -- Without a reason, the start is noted only when the client uses the key for the first time.
  local text = (cold or why ~= '-') and why or ''
  if not claim then
    call('DEL', GRANT)
    note_grant(owner, ttl, first, count, text)
  end
  if line then
    line.remove({ owner })
  end
  if claim then
    shares.grant(owner, claim, ttl, first, count, text)
  else
    call('SET', LOCK, owner, 'PX', ARGV[2])
  end
  return { 1, first, count }
end

if not holder and not claim and call('EXISTS', LINE, OPEN) == 0 then
  return grant()
end

if holder == owner then
  local first, count = block_of(owner)
  local counter = reserve > 0 and count == 0 and counted()
  local lease_ms, lease = lift(ttl)
  if counter and (counter == 0 or counter > FENCING_MAX) then
    -- The answer to an earlier ask was lost, and its fencing tokens are lost with the counter.
    first, count = take(reserve, cold)
    if count == 0 then
      -- The lease stays, because this may be a late copy of an ask whose answer arrived.
      return { 7 }
    end
    note_block(owner, first, count)
  end
  call('PEXPIRE', GRANT, lease)
  if count > 0 then
    keep_counter(lease_ms)
  end
  return { 1, first, count, 1 }
end

local function ahead()
  return call('ZRANK', LINE, owner) or call('ZCARD', LINE)
end

-- In its last millisecond, a lease has no time left. Zero would mean that asking at once may help.
local function lease_left()
  local left = call('PTTL', LOCK)
  return left < 0 and -1 or math.max(left, 1)
end

-- Whether one holder has the key alone, so that nothing can be granted.
local is_alone = holder and not is_mark(holder)
if is_alone and of > 0 then
  return { 8, 0 }
end
if is_alone and not stance then
  return { 0, lease_left(), ahead(), '', 0 }
end

-- Takes or refreshes the place of the client, if it waits. Returns whether the place is new; nil if
-- the line is full.
local function join(line)
  if not stance then
    return false
  end
  local asked = {
    stance = stance,
    handed_ttl = handed_ttl,
    ask_no = tonumber(ask_no),
    reserve = ARGV[3],
    inbox = inbox,
    why = why,
  }
  return line.enter(owner, asked, tonumber(waiter_ttl))
end

if is_alone then
  local line = open_line()
  local is_new = join(line)
  if is_new == nil then
    return { 2 }
  end
  line.front()
  local client = client_of(holder)
  if client == '' then
    local left, places, look = lease_left(), ahead(), open_openings().seen()
    if look and places == 0 then
      left = left < 0 and look or math.min(left, look)
    end
    return { 0, left, places, '?', 0 }
  end
  if not is_new then
    return { 0, lease_left(), ahead(), '', 0 }
  end
  -- Clients of one node have channels with the same tag.
  local tag = string.match(inbox, '^{%d+}') or ''
  return { 0, lease_left(), ahead(), client, tell(tag .. client, 'w ' .. LOCK) }
end

shares = open_shares(holder)
local has_line = call('EXISTS', LINE) == 1
local used = shares.usage(has_line)
if used and (used > 0) ~= (of > 0) then
  return { 8, used }
end
local limit = of > 0 and shares.limit()
if limit and limit ~= of then
  return { 8, limit }
end
if shares.has(owner) then
  local first, count = shares.lift(owner, ttl)
  if count > 0 then
    keep_counter(ttl)
  end
  return { 1, first, count, 1 }
end
if of > 0 then
  shares.limit_to(of)
end

-- While the key is free for other libraries, a client that joins the line waits. A client that only
-- watches does not: its place holds nobody up.
local openings = open_openings()
if not holder then
  openings.after_gap()
end
local open_ms, look_ms = openings.left()
local is_open = not holder and open_ms > 0 and not EPOCH
local waits = stance and stance ~= 'w'

-- If nobody waits, nobody is passed. Adding a place and removing it at once would take most of the
-- time.
local is_passed = has_line or (is_open and waits)
if not is_passed and shares.admits(shares.taken(), claim) then
  return grant()
end

local line = open_line(shares)
local is_new = join(line)
if is_new == nil then
  return { 2 }
end

local denied, handed = 0, 0
if is_open then
  local head, place = line.front()
  if place and head ~= 'w' and (waits or not stance) then
    -- The reply says `?`, as if another library held the key. So the client of the head hears at
    -- once when another library takes it.
    local places = ahead()
    return { 0, places == 0 and waits and look_ms or -1, places, '?', 0 }
  end
end
for _ = 0, RUN_MAX do
  local taken = shares.taken()
  local head, place = line.front()
  local is_head = place and place.owner == owner
  if (head == NOBODY or is_head) and shares.admits(taken, claim) then
    local reply = grant(line)
    if claim and is_head and reply[1] == 1 then
      -- The waiters behind this client may share the key too.
      line.run(shares.taken())
    end
    return reply
  end
  if head == UNEXAMINED and taken ~= ALONE then
    return { 0, 0, ahead(), '', denied }
  end
  -- A strict request, which has an epoch, hands nothing over, because waiters that joined a line
  -- here have other terms.
  local joins = place and head ~= 'w' and not EPOCH
  if not place or is_head or (joins and not shares.admits(taken, place.claim)) then
    break
  end
  if joins and handed == RUN_MAX then
    return { 0, 0, ahead(), '', denied }
  end
  if joins and place.reserve > 0 and is_at_its_end() then
    -- The head gets the error when it asks.
    return { 0, GIVES_WAY_MS, ahead(), '', taken == nil and line.wake(place) or denied }
  end
  if joins then
    denied = math.max(denied, line.hand_over(place))
    handed = handed + 1
  elseif taken ~= nil then
    break
  elseif is_new and call('HGET', GRANT, 'a') then
    return { 0, GIVES_WAY_MS, ahead(), '', 0 }
  else
    return grant(line)
  end
end
local left = shares.taken() == ALONE and lease_left() or shares.left()
return { 0, left, ahead(), '', denied }
