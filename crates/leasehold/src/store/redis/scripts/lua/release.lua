-- release.lua: ends the lease and the place of an owner, and hands the key to the head of the line,
-- if release_at_once.lua did not answer. Decides like `decide_release` and `wakes_next` in
-- core/line.rs.
-- KEYS, ARGV, replies  as release_at_once.lua says

-- No waiter becomes the owner without the fencing tokens that it wants.
local reserve = tonumber(ARGV[3]) or 0

-- Gives the key to its client again, with another owner token and fresh fencing tokens.
local function keep()
  local heir = ARGV[5]
  local lease_ms, lease = lift(keep_ttl)
  local first, count = take(reserve, ARGV[4] == '1')
  bequeath(owner, heir, first, count)
  call('PEXPIRE', GRANT, lease)
  keep_counter(lease_ms)
  call('SET', LOCK, heir, 'PX', lease)
  return { 3, first, count }
end

local may_keep = is_held and keep_ttl and not (reserve > 0 and is_at_its_end())
local openings = open_openings()
if is_held and may_open then
  -- This comes first, because at the server's memory limit a script must not begin with SET, see
  -- grant.lua.
  keep_counter(0)
end
local opens = is_held and may_open and not has_line and openings.begin(may_keep)
if not has_line and may_keep and not opens then
  return keep()
end

local shares = open_shares(holder)
if not has_line and not is_held then
  if not shares.has(owner) then
    -- As in leave_at_once.lua.
    call('HDEL', GRANT, '')
    return { 0 }
  end
  shares.leave(owner)
  return 1
end

local line = open_line(shares)

-- Ends the lease and the place of an owner that does not have the key alone. Others may have waited
-- behind that place although there is room for them, or behind a lease that ended by itself.
local function leave()
  local is_one = shares.has(owner)
  -- A release may have told the head alone that the key is free. See `wakes_next` in core/line.rs.
  local was_head = false
  if not holder then
    local _, first = line.front()
    was_head = first and first.owner == owner
  end
  line.remove({ owner })
  if is_one then
    shares.leave(owner)
  end
  local handed, denied = 0, 0
  if holder and not is_mark(holder) and client_of(holder) == '' then
    openings.seen()
  end
  local is_shared = not holder or is_mark(holder)
  if not holder and openings.left() > 0 then
    -- The next waiter may not know of the opening, but has to look for the end of it.
    local head, place = line.front()
    denied = place and head ~= 'w' and tell(place.inbox, 'f ' .. LOCK) or 0
    -- A place that joined was told just now.
    was_head = was_head and head == 'w'
  elseif is_shared and (hands_over or ARGV[2] == 'share') then
    handed, denied = line.run(shares.taken())
  end
  if was_head and handed == 0 then
    local _, place = line.front()
    if place then
      line.wake(place)
    end
  end
  if not is_one then
    return { 0 }
  end
  if handed > 0 then
    return { 2, denied }
  end
  local head, place = line.front()
  local is_free = call('EXISTS', LOCK) == 0
  return { 1, is_free and place and line.wake(place) or denied }
end

if not is_held then
  return leave()
end

if ARGV[2] == 'share' then
  -- The lease keeps the time that it has left, and its reason.
  local lease_ms = math.max(call('PTTL', LOCK), tonumber(ARGV[3]))
  local why = is_noted(owner) and call('HGET', GRANT, 'w') or ''
  call('DEL', GRANT)
  shares.hold_alone(nil)
  shares.grant(ARGV[4], 's', lease_ms, 0, 0, why)
  line.run('s')
  return { 3, 0, 0 }
end

-- A holder has no place, because each grant and each hand-over removes it.
local head, place = NOBODY, nil
if has_line then
  head, place = line.front()
end
if has_line and may_open and head ~= UNEXAMINED and head ~= 'w' then
  opens = openings.begin(place or may_keep)
end
if head == NOBODY and may_keep and not opens then
  return keep()
end
keep_counter(0)
call('DEL', LOCK, GRANT)
shares.hold_alone(nil)
if opens then
  return { 1, place and tell(place.inbox, 'f ' .. LOCK) or 0 }
end
if has_line and hands_over then
  local handed, denied = line.run(nil)
  if handed > 0 then
    return { 2, denied }
  end
end
return { 1, place and line.wake(place) or 0 }
