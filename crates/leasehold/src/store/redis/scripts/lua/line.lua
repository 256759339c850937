-- line.lua: the waiters for a key, and handing it over; shared by scripts that end leases or ask.
-- KEYS  line, ends, places, and those of the holders
-- ARGV  none of its own
-- replies  none of its own

-- The result for the front of the line: one of these, or the stance of the first living place.
local NOBODY, UNEXAMINED = 'nobody', 'unexamined'
local REAPED_MAX = 8
local REAPED = '8'
local FULL_REAPED_MAX = 100
local GIVES_WAY_MS = 20
local GIVES_WAY = '20'
local RUN_MAX = 64

-- Publishes a hint to an inbox, which is `{TAG}CLIENT` or CLIENT alone. With a tag, the client may
-- listen to a shard channel, whose messages stay at the nodes of one shard. If nobody got it there,
-- the hint goes to the channel of the client, which a cluster publishes at all nodes. Returns 1 if
-- publishing is forbidden. That changes nothing else.
local function tell(inbox, hint)
  local told = 0
  if string.sub(inbox, 1, 1) == '{' then
    told = redis.pcall('SPUBLISH', ':lh:inbox:' .. inbox, hint)
  end
  if told == 0 or type(told) == 'table' then
    told = redis.pcall('PUBLISH', ':lh:inbox:' .. string.sub(inbox, -12), hint)
  end
  return type(told) == 'table' and told.err and 1 or 0
end

-- Opens the line for this step. One function, so that steps without a line do not pay for defining
-- the inner ones. `shares` are the open shares.
local function open_line(shares)
  local arrived = now_us()
  local now_ms = math.floor(arrived / 1000)

  -- The place of an owner; nil if it has none that can be read.
  local function place_of(owner)
    local stance, ends, handed_ttl, ask_no, reserve, since, inbox, why = string.match(
      call('HGET', PLACES, owner) or '',
      '^([jwsp]%d*)|(%d+)|(%d+)|(%d+)|(%d+)|(%d+)|([^|]*)|(.*)$'
    )
    return stance and {
      owner = owner,
      stance = stance,
      claim = claim_of(stance),
      ends = tonumber(ends),
      handed_ttl = tonumber(handed_ttl),
      ask_no = tonumber(ask_no),
      reserve = tonumber(reserve),
      since = since,
      inbox = inbox,
      why = why,
    }
  end

  local function remove(owners)
    if #owners > 0 then
      call('ZREM', LINE, unpack(owners))
      call('ZREM', ENDS, unpack(owners))
      call('HDEL', PLACES, unpack(owners))
    end
  end

  -- Whether there is room for one more place. If the line is full, removes some expired places, so
  -- that they do not lock out living waiters.
  local function has_room()
    if call('ZCARD', LINE) < PLACES_MAX then
      return true
    end
    remove(call('ZRANGEBYSCORE', ENDS, '-inf', whole(now_ms), 'LIMIT', 0, FULL_REAPED_MAX))
    return call('ZCARD', LINE) < PLACES_MAX
  end

  -- Appends an owner to the end of the line, even if the clock went back.
  local function append(owner)
    local last = call('ZRANGE', LINE, '-1', '-1', 'WITHSCORES')[2] or 0
    call('ZADD', LINE, whole(math.max(arrived, last + 1)), owner)
  end

  local line = { remove = remove }

  -- Takes or refreshes the place of a waiter. Returns whether the place is new; nil if the line is
  -- full.
  function line.enter(owner, asked, waiter_ttl)
    local is_new = not call('ZSCORE', LINE, owner)
    if is_new and not has_room() then
      return nil
    end
    local before = not is_new and place_of(owner)
      or { ends = 0, ask_no = 0, since = whole(arrived) }
    local ends = whole(math.max(before.ends, now_ms + waiter_ttl))
    local keep_ms = whole(math.max(call('PTTL', LINE), waiter_ttl))
    local place = {
      asked.stance,
      ends,
      asked.handed_ttl,
      whole(math.max(before.ask_no, asked.ask_no)),
      asked.reserve,
      before.since,
      asked.inbox,
      asked.why,
    }
    -- Sets the time to live of each key before the next write, because the user may lack a right.
    call('HSET', PLACES, owner, table.concat(place, '|'))
    expire(PLACES, keep_ms)
    call('ZADD', ENDS, ends, owner)
    expire(ENDS, keep_ms)
    if is_new then
      append(owner)
    end
    expire(LINE, keep_ms)
    return is_new
  end

  -- The place of an owner, if it is alive.
  local function living(owner)
    local place = place_of(owner)
    return place and place.ends > now_ms and place
  end

  -- Drops expired places at the front. Returns the kind of the first living place, and the place.
  function line.front()
    local owners = call('ZRANGE', LINE, '0', '1')
    local head, place = NOBODY, owners[1] and living(owners[1])
    if place then
      place.is_alone = #owners == 1
      return place.stance, place
    end
    local dead = {}
    for _, owner in ipairs(call('ZRANGE', LINE, '0', REAPED)) do
      place = living(owner)
      if place then
        head = place.stance
        break
      end
      if #dead == REAPED_MAX then
        head = UNEXAMINED
        break
      end
      dead[#dead + 1] = owner
      place = nil
    end
    remove(dead)
    return head, place
  end

  -- Tells the head that the key is free, and holds newcomers back for a while. Returns 1 if the
  -- message is forbidden.
  function line.wake(head)
    call('HSET', GRANT, 'a', '1')
    expire(GRANT, GIVES_WAY)
    return tell(head.inbox, 'f ' .. LOCK)
  end

  -- Makes the head the owner. Returns 1 if its hint is forbidden. Raises the counter to the clock,
  -- because the client that gives the key away may not know that the server forgot the counter.
  function line.hand_over(head)
    if head.is_alone then
      call('DEL', LINE, ENDS, PLACES)
    else
      remove({ head.owner })
    end
    if not head.claim then
      call('DEL', GRANT)
    end
    local first, count = take(head.reserve, true)
    -- `take` has set the usual time to live of the counter.
    if count > 0 and head.handed_ttl > FENCE_IDLE_MS then
      keep_counter(head.handed_ttl)
    end
    if head.claim then
      shares.grant(head.owner, head.claim, head.handed_ttl, first, count, head.why)
    else
      note_grant(head.owner, head.handed_ttl, first, count, head.why)
      call('SET', LOCK, head.owner, 'PX', whole(head.handed_ttl))
      shares.hold_alone(head.owner)
    end
    local words = { 'g', whole(head.ask_no), whole(first), count, head.owner, LOCK }
    return tell(head.inbox, table.concat(words, ' '))
  end

  -- Hands the key to the places at the front that are due, oldest first. If there are too many for
  -- one step, tells the next of them to ask. Returns how many got it, and 1 if a hint is forbidden.
  function line.run(taken)
    local handed, denied = 0, 0
    for _ = 0, RUN_MAX do
      local head, place = line.front()
      local is_due = place and head ~= 'w' and shares.admits(taken, place.claim)
      if not is_due or (place.reserve > 0 and is_at_its_end()) then
        return handed, denied
      end
      if handed == RUN_MAX then
        return handed, math.max(denied, tell(place.inbox, 'f ' .. LOCK))
      end
      denied = math.max(denied, line.hand_over(place))
      handed = handed + 1
      taken = shares.taken()
    end
  end

  return line
end
