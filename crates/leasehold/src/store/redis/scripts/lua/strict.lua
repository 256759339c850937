-- strict.lua: grants nothing new while the server may have forgotten its leases. Comes before the
-- scripts of an acquire request. It answers the request if the key is free and the server is
-- quarantined. It does not affect holders: they can repeat their request, renew and release.
-- KEYS  lock, epoch
--   epoch  HASH  without a time to live, so that no policy evicts it as about to expire. Its field
--                `switch` belongs to switch.lua. The other fields:
--                run     the run id of the process that the data was last seen in. With another one
--                        or none, this process has forgotten the leases of that process, or the
--                        data was deleted
--                replid  its replication id then. It changes when the process becomes a replica
--                        and a primary again: it may have taken over other data
--                until   during a quarantine: its end (ms of the server's clock)
-- ARGV  behind those of the script: the run id and the replication id of the server, as asked for
--       on this very connection when it was made, and the length of a quarantine, in ms
-- replies  {4, left_ms, for_ms} quarantined: the time left, and the whole length
--          {5} the connection leads to another server than at first, because a proxy keeps
--            connections for longer than servers, or the replication id has changed. Nothing
--            was done
--          {6} the epoch holds data of another type
--          as the script says
local run_id, replid, quarantine_ms = ARGV[#ARGV - 2], ARGV[#ARGV - 1], ARGV[#ARGV]
-- Without these ids, no change would ever be noticed.
assert(run_id ~= '' and replid ~= '', 'an ask without a run id or a replication id')

-- Asked each time, because nothing else shows that the server of this connection was a replica
-- meanwhile.
local replication = call('INFO', 'replication')
if string.match(replication, 'master_replid:(%w+)') ~= replid then
  return { 5 }
end
local epoch = redis.pcall('HMGET', EPOCH, 'run', 'until', 'replid')
if epoch.err then
  if string.find(epoch.err, 'WRONGTYPE', 1, true) then
    return { 6 }
  end
  -- Raises the same error again, because a returned error lacks its code before Redis 7.0.
  call('HMGET', EPOCH, 'run', 'until', 'replid')
end
local is_known = epoch[1] == run_id
-- Asked only in this case, because the answer takes as long as everything else. Trusting the
-- caller's run id would restart the quarantine whenever old and new connections alternate.
if not is_known and string.match(call('INFO', 'server'), 'run_id:(%w+)') ~= run_id then
  return { 5 }
end
if is_known and epoch[3] ~= replid then
  -- A primary also changes its id when its first replica comes, and some time after its last one
  -- has left. Only a former replica names the id that it had before.
  is_known = string.match(replication, 'master_replid2:0+%s') ~= nil
  if is_known then
    call('HSET', EPOCH, 'replid', replid)
  end
end
if not is_known or epoch[2] then
  local time = call('TIME')
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  -- If `until` is not a time, the end of the quarantine is unknown, so it begins anew.
  local ends_ms = tonumber(string.match(epoch[2] or '', '^%d+$'))
  if not is_known or not ends_ms then
    ends_ms = now_ms + quarantine_ms
    local ends = string.format('%.0f', ends_ms)
    call('HSET', EPOCH, 'run', run_id, 'replid', replid, 'until', ends)
  end
  -- The last millisecond belongs to the quarantine, as with a time to live.
  if ends_ms < now_ms then
    call('HDEL', EPOCH, 'until')
  elseif call('EXISTS', LOCK) == 0 then
    -- Zero would mean that asking at once may help. The upper limit keeps the reply a number.
    local left_ms = math.min(math.max(ends_ms - now_ms, 1), 9007199254740991)
    return { 4, left_ms, tonumber(quarantine_ms) }
  end
end
