-- inspect.lua: reads the state of a key, for people and tools. Writes nothing.
-- KEYS  lock, fence, grant, line, ends, places, shares
-- ARGV  how many waiters, and how many holders that share the key, to list at most
-- replies  {token, ttl_left_ms, counter, grant, waiting, waiters, holders}
--   token: of the holder, or nil; ttl_left_ms: -1 if its lease has no end; counter: text, or nil
--   grant: {first, count, since_us, why, idle} as texts or nils, if there is a note, or nil
--   holders: owner token, ttl_left_ms, first, count, since_us and why of each that shares the key
--   waiting: the number of all waiters; waiters: owner token and since_us (text) of each, in order
local SHOWN_MAX = tonumber(ARGV[1])
local PAGE = 100

local token = call('GET', LOCK)
local grant = call('HMGET', GRANT, 'o', 'f', 'n', 's', 'w', 'i')
local noted_owner = table.remove(grant, 1)
if not token or noted_owner ~= token then
  grant = false
end

local now_ms = math.floor(now_us() / 1000)
local waiters, shown = {}, 0

local function show(owner)
  local since = string.match(call('HGET', PLACES, owner) or '', '^[jwsp]%d*|%d+|%d+|%d+|%d+|(%d+)|')
  waiters[#waiters + 1] = owner
  waiters[#waiters + 1] = since or ''
  shown = shown + 1
end

for start = 0, PLACES_MAX - 1, PAGE do
  local owners = call('ZRANGE', LINE, start, start + PAGE - 1)
  local ends = #owners > 0 and call('ZMSCORE', ENDS, unpack(owners))
  for at, owner in ipairs(owners) do
    if tonumber(ends[at] or 0) > now_ms and shown < SHOWN_MAX then
      show(owner)
    end
  end
  if shown >= SHOWN_MAX or #owners < PAGE then
    break
  end
end

local waiting = call('ZCOUNT', ENDS, '(' .. whole(now_ms), '+inf')
local holders = {}
if is_mark(token) then
  holders = open_shares(token).list(SHOWN_MAX)
  token = false
end
return { token, call('PTTL', LOCK), call('GET', FENCE), grant, waiting, waiters, holders }
