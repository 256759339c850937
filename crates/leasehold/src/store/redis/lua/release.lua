-- release.lua: ends the lease and the place of an owner, and hands the key to the head of the line,
-- where release_at_once.lua did not answer. Decides as `decide_release` in core/line.rs.
-- KEYS, ARGV, replies  as release_at_once.lua says

-- Keeps the lease for its owner, with fresh fencing tokens.
local function keep()
  local lease_ms = lift(keep_ttl)
  local first, count = take(tonumber(ARGV[3]), ARGV[4] == '1')
  is_noted(owner)
  call('HSET', GRANT, 'o', owner, 'f', whole(first), 'n', count, 'i', '1')
  call('PEXPIRE', GRANT, lease_ms)
  keep_counter(lease_ms)
  return { 3, first, count }
end

if not has_line then
  return keep()
end

local line = open_line()
line.remove({ owner })
if not is_held then
  return { 0 }
end
local head, place = line.front()
if head == JOINED then
  return { 2, line.hand_over(place) }
elseif head == NOBODY and keep_ttl then
  return keep()
end
keep_counter(0)
call('DEL', LOCK, GRANT)
return { 1, place and tell(place.inbox, 'f ' .. LOCK) or 0 }
