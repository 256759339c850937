-- release.lua: ends the lease and the place of an owner, and hands the key to the head of the line,
-- where release_at_once.lua did not answer. Decides as `decide_release` in core/line.rs.
-- KEYS, ARGV, replies  as release_at_once.lua says

-- Hands the key to its client once more, by another token and with fresh fencing tokens.
local function keep()
  local heir = ARGV[5]
  local lease_ms, lease = lift(keep_ttl)
  local first, count = take(tonumber(ARGV[3]), ARGV[4] == '1')
  bequeath(owner, heir, first, count)
  call('PEXPIRE', GRANT, lease)
  keep_counter(lease_ms)
  call('SET', LOCK, heir, 'PX', lease)
  return { 3, first, count }
end

if not has_line then
  return keep()
end

local line = open_line()
if not is_held then
  line.remove({ owner })
  return { 0 }
end
-- Who holds the key has no place: each grant and each hand-over removes it.
local head, place = line.front()
if head == JOINED and hands_over then
  return { 2, line.hand_over(place) }
elseif head == NOBODY and keep_ttl then
  return keep()
end
keep_counter(0)
call('DEL', LOCK, GRANT)
return { 1, place and line.wake(place) or 0 }
