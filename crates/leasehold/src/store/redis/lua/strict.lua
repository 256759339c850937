-- strict.lua: nothing new is granted while the server may have forgotten what it granted. Stands
-- before the scripts of an ask, and answers it where the key is free and the server is quarantined.
-- Who holds a key is none of its business: to ask once more for one's own, to renew and to release
-- go on as ever.
-- KEYS  lock, epoch
--   epoch  HASH  without a time to live, so that no policy evicts what is about to expire:
--                run    the run id of the process that the data was last seen in. Another one, or
--                       none: this process has forgotten what another granted, or the data was
--                       thrown away
--                until  while nothing new may be granted: when that ends (ms of the server's clock)
-- ARGV  behind those of the script: the run id of the server at this very connection, and for how
--       long it is quarantined, in ms
-- replies  {4, left_ms, for_ms} quarantined, for how long still, and for how long in all
--          {5} this is another process than the one at which the connection was made: something
--            between keeps connections for longer than servers. Nothing was done
--          {6} the epoch holds data of another type
--          as the script says
local run_id, quarantine_ms = ARGV[#ARGV - 1], ARGV[#ARGV]
-- Nothing would ever differ from it.
assert(run_id ~= '', 'an ask without a run id')

local epoch = redis.pcall('HMGET', EPOCH, 'run', 'until')
if epoch.err then
  if string.find(epoch.err, 'WRONGTYPE', 1, true) then
    return { 6 }
  end
  -- The same error once more, raised: one that is returned lacks its code before Redis 7.0.
  call('HMGET', EPOCH, 'run', 'until')
end
local is_known = epoch[1] == run_id
-- Asked in this case only, since the answer takes as long as all the rest. Who believed the asker
-- would let those of an old connection and those of a new one begin the quarantine again and again.
if not is_known and string.match(call('INFO', 'server'), 'run_id:(%w+)') ~= run_id then
  return { 5 }
end
if not is_known or epoch[2] then
  local time = call('TIME')
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  -- What is no moment does not tell when it ends, so it begins anew.
  local ends_ms = tonumber(string.match(epoch[2] or '', '^%d+$'))
  if not is_known or not ends_ms then
    ends_ms = now_ms + quarantine_ms
    call('HSET', EPOCH, 'run', run_id, 'until', string.format('%.0f', ends_ms))
  end
  -- Its last millisecond is of it, as with a time to live.
  if ends_ms < now_ms then
    call('HDEL', EPOCH, 'until')
  elseif call('EXISTS', LOCK) == 0 then
    -- Zero would mean that asking at once may help, and a number without end is none in a reply.
    local left_ms = math.min(math.max(ends_ms - now_ms, 1), 9007199254740991)
    return { 4, left_ms, tonumber(quarantine_ms) }
  end
end
