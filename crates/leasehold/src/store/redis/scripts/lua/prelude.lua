-- prelude.lua: the beginning of every script: the keys of one lock, and the limits.
-- KEYS  the same eight for every script. Each key that is written has a time to live from then on.
--       One more for a strict request, see strict.lua
--   lock    STRING  the owner token of the holder; its time to live is the lease. While holders
--                   share the key: `:lh:shared` or `:lh:permits`, which keeps all others out
--   fence   STRING  the fencing counter: the highest number given so far
--   grant   HASH    details about the holder, if there are any:
--                   o owner token, f and n first and count of its fencing tokens, s start (µs of
--                   the server's clock), w reason as in ARGV, i set while idle; r owner token of
--                   the last holder that was asked to let go, q that request: at_us|by|reason.
--                   For a free key: a, set while the head that was woken has time to ask
--                   For each holder that shares the key: `+` and its owner token ->
--                   want|first|count|since_us|why, if there is more to say than `0|0|0||`;
--                   and `?` and its owner token -> the request to let go, if it was asked
--   line    ZSET    the places: owner tokens by arrival (µs of the server's clock)
--   ends    ZSET    owner tokens by the end of their place (ms of the server's clock)
--   places  HASH    owner token -> stance|ends_ms|handed_ttl_ms|ask_no|reserve|since_us|
--                   inbox|why. The inbox is CLIENT, or {TAG}CLIENT, see line.lua. The
--                   stance is j (joins, to have the key alone), w (watches), s (joins, to
--                   share it), or p and a number (joins, for so many permits)
--   shares  ZSET    the holders that share the key: owner tokens by the end of their lease (ms of
--                   the server's clock). For a semaphore also `\tof`, the number of permits, and
--                   `\ttaken`, the sum of those that are taken
--   open    STRING  when the line stands aside for clients that take no place: due_ms|till_ms|
--                   missed, see open.lua. There is none before the key was first handed over
-- ARGV  as each script says
-- replies  as each script says; blocks of fencing tokens as `first, count`, none as `0, 0`
local call = redis.call
local LOCK, FENCE, GRANT, LINE, ENDS, PLACES, SHARES, OPEN, EPOCH = unpack(KEYS)

local FENCE_IDLE_MS = 600000
local FENCE_IDLE = '600000'
local FENCING_MAX = 9007199254740991
-- How far before the clock a block of tokens may begin (µs). No server restarts that fast.
local LEAP_MAX = 1000
local PLACES_MAX = 10000
-- No opening is due later than that, see open.lua.
local OPENS_WITHIN_MS = 10000
local SHARED, PERMITS = ':lh:shared', ':lh:permits'
-- In `shares`, numbers of permits have lower scores than this, and ends of leases have higher ones.
local SCORE_MIN = '(1000000'
