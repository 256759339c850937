-- inspect.lua: reads the state of a key, for people and tools. Writes nothing.
-- KEYS  lock, fence, grant, line, ends, places, shares, open
-- ARGV  how many waiters, and how many holders that share the key, to list at most
-- replies  {token, ttl_left_ms, counter, grant, waiting, waiters, holders, of, taken}
--   token: of the holder, or nil; ttl_left_ms: -1 if its lease has no end; counter: text, or nil
--   grant: {first, count, since_us, why, idle, request} as texts or nils, if there is a note, or
--   nil; request: to let go, if the holder was asked: at_us|by|reason
--   holders: owner token, ttl_left_ms, first, count, since_us, why, number of permits (0: a share
--   of the lock) and request ('' for none) of each that shares the key
--   of, taken: how many permits there are, or 0 if the key is no semaphore, and how many are taken
--   waiting: the number of all waiters
--   waiters: owner token, since_us (text) and stance of each, in order
local SHOWN_MAX = tonumber(ARGV[1])
local PAGE = 100

local token = call('GET', LOCK)
local grant = call('HMGET', GRANT, 'o', 'f', 'n', 's', 'w', 'i', 'r', 'q')
local noted_owner = table.remove(grant, 1)
local asked_owner = table.remove(grant, 6)
if asked_owner ~= token then
  grant[6] = false
end
if not token or noted_owner ~= token then
  grant = false
end

local now_ms = math.floor(now_us() / 1000)
local waiters, shown = {}, 0

local function show(owner)
  local stance, since =
    string.match(call('HGET', PLACES, owner) or '', '^([jwsp]%d*)|%d+|%d+|%d+|%d+|(%d+)|')
  waiters[#waiters + 1] = owner
  waiters[#waiters + 1] = since or ''
  waiters[#waiters + 1] = stance or ''
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
local shares = open_shares(token)
-- A lock may remember how many permits its name had as a semaphore.
local is_lock = token and token ~= PERMITS
local of, taken = 0, 0
-- A user who only locks has no right to ZSCORE.
if not is_lock and call('EXISTS', SHARES) == 1 then
  of = shares.limit() or 0
end
local holders = {}
if is_mark(token) then
  holders = shares.list(SHOWN_MAX)
  taken = of > 0 and shares.count() or 0
  token = false
end
local left = call('PTTL', LOCK)
return { token, left, call('GET', FENCE), grant, waiting, waiters, holders, of, taken }
