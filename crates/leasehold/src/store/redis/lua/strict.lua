-- strict.lua: nothing new is granted while the server may have forgotten what it granted. Stands
-- before the scripts of an ask, and answers it where the key is free and the server is quarantined.
-- Who holds a key is none of its business: to ask once more for one's own, to renew and to release
-- go on as ever.
-- KEYS  lock, epoch, quarantine
--   epoch       STRING  the run id of the process that the data was last seen in; no time to live.
--                       Another one, or none: this process has forgotten what another granted, or
--                       the data was thrown away
--   quarantine  STRING  lives for as long as nothing new may be granted
-- ARGV  behind those of the script: the run id of the server at this very connection, and for how
--       long it is quarantined, in ms
-- replies  {4, left_ms (-1: it has no end), for_ms} quarantined, for how long still, and for how
--            long in all
--          as the script says
local run_id, quarantine_ms = ARGV[#ARGV - 1], ARGV[#ARGV]
-- Nothing would ever differ from it.
assert(run_id ~= '', 'an ask without a run id')

if call('GET', EPOCH) ~= run_id then
  -- The quarantine first: where the second is refused, the next ask begins it anew.
  call('SET', QUARANTINE, run_id, 'PX', quarantine_ms)
  call('SET', EPOCH, run_id)
end
local quarantined = call('PTTL', QUARANTINE)
if quarantined ~= -2 and call('EXISTS', LOCK) == 0 then
  -- In its last millisecond it has none left; zero would mean that asking at once may help.
  return { 4, quarantined == -1 and -1 or math.max(quarantined, 1), tonumber(quarantine_ms) }
end
