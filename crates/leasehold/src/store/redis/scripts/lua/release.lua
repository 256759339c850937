-- release.lua: ends the lease and the place of an owner, and hands the key to the head of the line,
-- if release_at_once.lua did not answer. Decides like `decide_release` in core/line.rs.
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

local may_keep = keep_ttl and not (reserve > 0 and is_at_its_end())
if not has_line and may_keep then
  return keep()
end

local line = open_line()
if not is_held then
  line.remove({ owner })
  return { 0 }
end
-- A holder has no place: each grant and each hand-over removes it.
local head, place = line.front()
if head == JOINED and hands_over and not (place.reserve > 0 and is_at_its_end()) then
  return { 2, line.hand_over(place) }
elseif head == NOBODY and may_keep then
  return keep()
end
keep_counter(0)
call('DEL', LOCK, GRANT)
return { 1, place and line.wake(place) or 0 }
