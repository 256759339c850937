-- open.lua: openings, in which the line stands aside; shared by scripts that end leases or ask.
-- Clients of other libraries poll and take no place. With hand-overs alone, the key would never be
-- free for them.
--
-- | another library | the line has the key for | then it opens for at most | earlier end |
-- |---|---|---|---|
-- | was not seen lately | 1 s | 30 ms | - |
-- | was seen | 100 ms (*) | 300 ms | 30 ms after another library was seen to have the key |
--
-- (*) Doubled by each opening that nobody used, up to 2 s. After seven unused openings, no library
-- counts as seen lately. During an opening, clients of Leasehold take places and wait.
-- KEYS  open: due_ms|till_ms|missed
--   due     when the next opening is due (ms of the server's clock); 0: one turn after the first
--           release from now on
--   till    the end of the last opening, or when another library was seen before it was due
--   missed  how many openings in a row nobody used. OPENINGS_MISSED_MAX: nobody is there. GAP:
--           nobody is there, and the key is free since `till`: no client of Leasehold wanted it
-- ARGV  none of its own
-- replies  none of its own
local OPENS_EVERY_MS = 1000
local OPENS_FOR_MS = 30
local TURN_MS = 100
local TURN_MAX_MS = 2000
local OPENS_LONG_MS = 300
local ENDS_AFTER_MS = 30
local OPENINGS_MISSED_MAX = 7
local GAP = 8
local LOOKS_EVERY_MS = 50
local LOOKS_OFTEN_MS = 10
local LOOKS_OFTEN_FOR_MS = 1000
local LOOKS_FOR_MS = 10000

-- Returns the client of an owner token of Leasehold: 22 characters, a dot, and the 12 characters of
-- the client. Returns '' for any other token.
local function client_of(token)
  local client = string.match(token, '^[A-Za-z0-9_%-]+%.([A-Za-z0-9_%-]+)$')
  return client and #client == 12 and #token == 35 and client or ''
end

-- Opens the openings for this step. One function, for the same reason as `open_line`.
local function open_openings()
  local now_ms = math.floor(now_us() / 1000)
  local text = call('GET', OPEN) or ''
  local due, till, missed = string.match(text, '^(%d+)|(%d+)|(%d)$')
  due, till, missed = tonumber(due), tonumber(till) or 0, tonumber(missed) or OPENINGS_MISSED_MAX
  -- If the server's clock was set back, the moments are too far ahead to mean anything.
  if due and due >= now_ms + OPENS_WITHIN_MS then
    due = now_ms
  end
  if till > now_ms + OPENS_LONG_MS then
    till = 0
  end

  local function write()
    local new = whole(due) .. '|' .. whole(till) .. '|' .. missed
    if new ~= text then
      call('SET', OPEN, new, 'PX', FENCE_IDLE)
    end
  end

  local openings = {}

  -- Returns how long the current opening lasts, or 0 if there is none, and when to look again.
  function openings.left()
    local left = math.max(till - now_ms, 0)
    return left, math.min(left, missed < OPENINGS_MISSED_MAX and LOOKS_EVERY_MS or LOOKS_OFTEN_MS)
  end

  -- Notes that a client of another library holds the key. Returns when the head is to look again,
  -- if the turn of the line ended just now. Clients of other libraries may follow each other at
  -- once, so that the key is free only for moments.
  function openings.seen()
    if till > now_ms then
      till = math.min(till, now_ms + ENDS_AFTER_MS)
    elseif due and due ~= 0 then
      till = now_ms
    end
    due, missed = 0, 0
    write()
    local since = now_ms - till
    if since < LOOKS_FOR_MS then
      return since < LOOKS_OFTEN_FOR_MS and LOOKS_OFTEN_MS or LOOKS_EVERY_MS
    end
  end

  -- Notes that a client of Leasehold finds the key free. If the key was free for as long as an
  -- opening, the openings begin anew, because a lock that is wanted now and then must not open each
  -- time.
  function openings.after_gap()
    if missed < GAP then
      return
    end
    missed = OPENINGS_MISSED_MAX
    if now_ms - till < OPENS_FOR_MS then
      return write()
    end
    due, till, text = nil, 0, ''
    call('DEL', OPEN)
  end

  -- Begins an opening if it is due. `is_wanted`: clients of Leasehold want the key, so that it
  -- would not be free otherwise. Returns whether it began. The caller frees the key then.
  function openings.begin(is_wanted)
    if missed >= OPENINGS_MISSED_MAX and not is_wanted then
      -- The key is free from now on, as in an opening.
      if due and due > now_ms then
        till, missed = now_ms, GAP
        write()
      else
        call('DEL', OPEN)
      end
      return false
    end
    if not due then
      due = now_ms + OPENS_EVERY_MS
    elseif due == 0 then
      due = now_ms + TURN_MS
    elseif due > now_ms then
      return false
    elseif missed >= OPENINGS_MISSED_MAX then
      till = now_ms + OPENS_FOR_MS
      due = till + OPENS_EVERY_MS
    else
      missed = missed + 1
      till = now_ms + OPENS_LONG_MS
      local is_last = missed == OPENINGS_MISSED_MAX
      due = till + (is_last and OPENS_EVERY_MS or math.min(TURN_MS * 2 ^ missed, TURN_MAX_MS))
    end
    write()
    return till > now_ms
  end

  return openings
end
