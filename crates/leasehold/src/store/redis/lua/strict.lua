-- strict.lua: nothing new is granted while the server may have forgotten what it granted. Stands
-- before the scripts of an ask, and answers it where the key is free and the server is quarantined.
-- Who holds a key is none of its business: to ask once more for one's own, to renew and to release
-- go on as ever.
-- KEYS  lock, epoch
--   epoch  HASH  without a time to live, so that no policy evicts what is about to expire:
--                run     the run id of the process that the data was last seen in. Another one, or
--                        none: this process has forgotten what another granted, or the data was
--                        thrown away
--                replid  its replication id then. It changes when the process becomes a replica
--                        and a primary again: it may have taken over the data of another
--                until   while nothing new may be granted: when that ends (ms of the server's
--                        clock)
-- ARGV  behind those of the script: the run id and the replication id of the server, as this very
--       connection was told when it was made, and for how long it is quarantined, in ms
-- replies  {4, left_ms, for_ms} quarantined, for how long still, and for how long in all
--          {5} this is not the server that the connection was told of: something between keeps
--            connections for longer than servers, or it has another replication id by now. Nothing
--            was done
--          {6} the epoch holds data of another type
--          as the script says
local run_id, replid, quarantine_ms = ARGV[#ARGV - 2], ARGV[#ARGV - 1], ARGV[#ARGV]
-- Nothing would ever differ from it.
assert(run_id ~= '' and replid ~= '', 'an ask without a run id or a replication id')

-- Asked each time: nothing else tells a connection that its server was a replica meanwhile.
local replication = call('INFO', 'replication')
if string.match(replication, 'master_replid:(%w+)') ~= replid then
  return { 5 }
end
local epoch = redis.pcall('HMGET', EPOCH, 'run', 'until', 'replid')
if epoch.err then
  if string.find(epoch.err, 'WRONGTYPE', 1, true) then
    return { 6 }
  end
  -- The same error once more, raised: one that is returned lacks its code before Redis 7.0.
  call('HMGET', EPOCH, 'run', 'until', 'replid')
end
local is_known = epoch[1] == run_id
-- Asked in this case only, since the answer takes as long as all the rest. Who believed the asker
-- would let those of an old connection and those of a new one begin the quarantine again and again.
if not is_known and string.match(call('INFO', 'server'), 'run_id:(%w+)') ~= run_id then
  return { 5 }
end
if is_known and epoch[3] ~= replid then
  -- A primary takes another id also when its first replica comes, and some time after its last one
  -- has left. Only one that was a replica names the id of before.
  is_known = string.match(replication, 'master_replid2:0+%s') ~= nil
  if is_known then
    call('HSET', EPOCH, 'replid', replid)
  end
end
if not is_known or epoch[2] then
  local time = call('TIME')
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  -- What is no moment does not tell when it ends, so it begins anew.
  local ends_ms = tonumber(string.match(epoch[2] or '', '^%d+$'))
  if not is_known or not ends_ms then
    ends_ms = now_ms + quarantine_ms
    local ends = string.format('%.0f', ends_ms)
    call('HSET', EPOCH, 'run', run_id, 'replid', replid, 'until', ends)
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
