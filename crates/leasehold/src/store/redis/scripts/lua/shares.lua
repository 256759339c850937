-- shares.lua: the holders that share a key; shared by scripts that grant, renew or end leases.
-- KEYS  lock, grant, ends, places, shares
-- ARGV  none of its own
-- replies  none of its own

-- The values of `taken`, as `Taken` in core/claim.rs: ALONE if one holder has the key alone, 's' if
-- holders share it, a number of permits, or nil if the key is free.
local ALONE = 'j'
local OF, TAKEN = '\tof', '\ttaken'
local BURIED_MAX = 1000
-- The most pages of ended holders that `inspect` reads.
local PAGES_MAX = 1000

-- Whether a value of the lock says that holders share it.
local function is_mark(holder)
  return holder == SHARED or holder == PERMITS
end

-- The claim of an ask or a place: nil for the whole key, 's', or a number of permits.
local function claim_of(stance)
  if stance == 's' then
    return 's'
  end
  return tonumber(string.match(stance, '^p(%d+)$'))
end

-- Opens the shares for this step. One function, for the same reason as `open_line`.
local function open_shares(holder)
  local now_ms = math.floor(now_us() / 1000)
  local shares = {}
  -- Read once in a step, in which the clock stands still: how many permits there are (0: nobody has
  -- said so lately) and are taken, and how many holders live.
  local limit, total, living

  -- Reads the note about a holder.
  local function details_of(owner)
    local text = call('HGET', GRANT, '+' .. owner)
    local want, first, count, since, why =
      string.match(text or '', '^(%d+)|(%d+)|(%d+)|(%d*)|(.*)$')
    return {
      is_noted = text and true,
      want = tonumber(want) or 0,
      first = tonumber(first) or 0,
      count = tonumber(count) or 0,
      since = since or '',
      why = why or '',
    }
  end

  -- Writes a field of the notes, which last for at least this long. A user may lack a right: PTTL
  -- comes first, since after a refusal the notes would never end, and `expire` undoes the write.
  local function write_note(field, text, least_ms)
    local kept_ms = math.max(call('PTTL', GRANT), least_ms)
    call('HSET', GRANT, field, text)
    expire(GRANT, whole(kept_ms))
  end

  local function note(owner, details, least_ms)
    local is_more = details.want > 0 or details.count > 0 or details.why ~= ''
    if is_more then
      local words =
        { details.want, whole(details.first), details.count, details.since, details.why }
      write_note('+' .. owner, table.concat(words, '|'), least_ms)
    end
  end

  -- How many permits there are; nil if nobody has said so lately.
  function shares.limit()
    limit = limit or tonumber(call('ZSCORE', SHARES, OF) or 0)
    return limit > 0 and limit or nil
  end

  local function total_taken()
    total = total or tonumber(call('ZSCORE', SHARES, TAKEN) or 0)
    return total
  end

  local function add_taken(change)
    total = math.max(total_taken() + change, 0)
    call('ZADD', SHARES, whole(total), TAKEN)
  end

  local function forget(owners)
    local want = 0
    for _, owner in ipairs(owners) do
      local details = details_of(owner)
      if details.is_noted then
        want = want + details.want
        call('HDEL', GRANT, '+' .. owner, '?' .. owner)
      end
    end
    call('ZREM', SHARES, unpack(owners))
    if want > 0 then
      add_taken(-want)
    end
  end

  -- Forgets holders whose lease has ended. Returns how many live.
  local function count_living()
    if not living then
      local now = whole(now_ms)
      local dead = call('ZRANGEBYSCORE', SHARES, SCORE_MIN, '(' .. now, 'LIMIT', 0, BURIED_MAX)
      if #dead > 0 then
        forget(dead)
      end
      living = call('ZCOUNT', SHARES, now, '+inf')
    end
    return living
  end

  -- Lets the lock last as long as the last of the leases, and the companions too. The lock is
  -- written last, so that an error on the way grants nothing.
  local function seal(is_semaphore)
    local last = call('ZRANGE', SHARES, '-1', '-1', 'WITHSCORES')
    local left = math.max(tonumber(last[2] or 0) - now_ms, 1)
    expire(SHARES, whole(math.max(call('PTTL', SHARES), left, is_semaphore and FENCE_IDLE_MS or 0)))
    local kept_ms = call('PTTL', GRANT)
    if kept_ms ~= -2 then
      expire(GRANT, whole(math.max(kept_ms, left)))
    end
    call('SET', LOCK, is_semaphore and PERMITS or SHARED, 'PX', whole(left))
  end

  -- Returns the part that the living holders have.
  function shares.taken()
    if holder and not is_mark(holder) then
      return ALONE
    end
    if not holder or count_living() == 0 then
      return nil
    end
    return holder == PERMITS and total_taken() or 's'
  end

  -- Returns the use of the key: nil if nobody uses it, 0 for a lock, or the number of permits.
  function shares.usage(has_line)
    if holder == PERMITS then
      -- Without a number, the server has evicted the holders: the key is as free as after a DEL.
      return shares.limit()
    end
    if holder then
      return 0
    end
    if not has_line then
      return nil
    end
    -- Any living place will do, because all of them want the same.
    local waiter = call('ZRANGEBYSCORE', ENDS, whole(now_ms + 1), '+inf', 'LIMIT', 0, 1)[1]
    local stance = waiter and string.match(call('HGET', PLACES, waiter) or '', '^([^|]+)|')
    if not stance then
      return nil
    end
    return string.match(stance, '^p') and shares.limit() or 0
  end

  -- Whether there is room for a claim. As `Taken::admits`.
  function shares.admits(taken, claim)
    -- The number of permits may have been lowered below the claim.
    if type(claim) == 'number' and (taken == nil or tonumber(taken)) then
      return (taken or 0) + claim <= (shares.limit() or 0)
    end
    return taken == nil or (taken == 's' and claim == 's')
  end

  -- Whether an owner shares the key.
  function shares.has(owner)
    local ends = is_mark(holder) and tonumber(call('ZSCORE', SHARES, owner) or 0) or 0
    return ends >= now_ms
  end

  -- How long it takes until the first of the leases ends.
  function shares.left()
    local now = whole(now_ms)
    local first = call('ZRANGEBYSCORE', SHARES, now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    return first[2] and math.max(tonumber(first[2]) - now_ms, 1) or -1
  end

  -- Sets how many permits there are.
  function shares.limit_to(of)
    limit = of
    local kept_ms = math.max(call('PTTL', SHARES), FENCE_IDLE_MS)
    call('ZADD', SHARES, whole(of), OF)
    expire(SHARES, whole(kept_ms))
  end

  -- Adds a holder. Call `taken` before.
  function shares.grant(owner, claim, ttl_ms, first, count, why)
    local is_semaphore = type(claim) == 'number'
    if not holder then
      -- Delete all that is left of earlier holders.
      local of = shares.limit()
      call('DEL', GRANT, SHARES)
      total, living = 0, 0
      if of then
        shares.limit_to(of)
      end
    end
    local want = is_semaphore and claim or 0
    local since = (want > 0 or count > 0 or why ~= '') and whole(now_us()) or ''
    local details = { want = want, first = first, count = count, since = since, why = why }
    note(owner, details, ttl_ms)
    living = count_living() + 1
    call('ZADD', SHARES, whole(now_ms + ttl_ms), owner)
    if is_semaphore then
      add_taken(want)
    end
    if not pcall(seal, is_semaphore) then
      forget({ owner })
      -- Raises the same error again, for the caller.
      seal(is_semaphore)
    end
    holder = is_semaphore and PERMITS or SHARED
  end

  -- The request to let go that was made to a holder, or false.
  function shares.request(owner)
    return call('HGET', GRANT, '?' .. owner)
  end

  -- Keeps a request to let go beside a holder, until its lease ends.
  function shares.ask(owner, request)
    local details, least_ms = details_of(owner), math.max(call('PTTL', LOCK), 1)
    if not details.is_noted then
      -- Note the holder in any case: `forget` deletes the request only if there is a note.
      write_note('+' .. owner, '0|0|0||', least_ms)
    end
    write_note('?' .. owner, request, least_ms)
  end

  -- Restarts the time to live of a holder, and never shortens it. Returns its fencing tokens, and
  -- the request to let go that was made to it, or false.
  function shares.lift(owner, ttl_ms)
    local ends = math.max(tonumber(call('ZSCORE', SHARES, owner)), now_ms + ttl_ms)
    -- This comes first, because at the server's memory limit a script must not begin with ZADD, see
    -- grant.lua.
    call('PEXPIRE', LOCK, whole(math.max(call('PTTL', LOCK), ttl_ms)))
    call('ZADD', SHARES, whole(ends), owner)
    seal(holder == PERMITS)
    local details = details_of(owner)
    return details.first, details.count, details.is_noted and shares.request(owner)
  end

  -- Notes the new fencing tokens of a holder.
  function shares.note_block(owner, first, count)
    local details = details_of(owner)
    details.first, details.count = first, count
    note(owner, details, math.max(call('PTTL', LOCK), 1))
  end

  -- Ends the lease of a holder. The lock ends with the last of the leases.
  function shares.leave(owner)
    local others = count_living() - 1
    local is_last = call('ZRANGE', SHARES, '-1', '-1')[1] == owner
    forget({ owner })
    living = others
    if others > 0 then
      if is_last then
        seal(holder == PERMITS)
      end
    else
      call('DEL', LOCK, GRANT)
      if shares.limit() then
        -- The number of permits stays known for as long after the last use.
        expire(SHARES, FENCE_IDLE)
      elseif holder == SHARED then
        call('DEL', SHARES)
      end
      holder = nil
    end
  end

  -- Notes that the key is free, or that one holder has it alone from now on.
  function shares.hold_alone(owner)
    holder = owner
  end

  -- How many permits the living holders have, for `inspect`.
  function shares.count()
    local taken = tonumber(call('ZSCORE', SHARES, TAKEN) or 0)
    local past = '(' .. whole(now_ms)
    for page = 1, PAGES_MAX do
      local at = (page - 1) * BURIED_MAX
      local dead = call('ZRANGEBYSCORE', SHARES, SCORE_MIN, past, 'LIMIT', at, BURIED_MAX)
      for _, owner in ipairs(dead) do
        taken = taken - details_of(owner).want
      end
      if #dead < BURIED_MAX then
        break
      end
    end
    return taken
  end

  -- The holders, each as owner, time left, and details, for `inspect`.
  function shares.list(most)
    local all = {}
    local owners = call('ZRANGEBYSCORE', SHARES, whole(now_ms), '+inf', 'LIMIT', 0, most)
    for _, owner in ipairs(owners) do
      local details = details_of(owner)
      all[#all + 1] = owner
      all[#all + 1] = tonumber(call('ZSCORE', SHARES, owner)) - now_ms
      all[#all + 1] = whole(details.first)
      all[#all + 1] = details.count
      all[#all + 1] = details.since
      all[#all + 1] = details.why
      all[#all + 1] = details.want
      all[#all + 1] = details.is_noted and shares.request(owner) or ''
    end
    return all
  end

  return shares
end
