-- Takes the time to live of all keys away. For a PER_CLIENT limiter a far one takes its place:
-- the other clients' keys are out of reach, and each client's next call gives its own the hash's.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- reply  {0, 1 where any key had a time to live (for PER_CLIENT: one below five years)}
local FAR, FIVE_YEARS = '315360000000', 157680000000

local changed = 0
if fields[3] == '1' then
  local keys = {KEYS[1], KEYS[4], KEYS[5]}
  for i = 1, 3 do
    local left = call('PTTL', keys[i])
    if left >= 0 and left < FIVE_YEARS then
      changed = 1
    end
  end
  for i = 1, 3 * changed do
    call('PEXPIRE', keys[i], FAR)
  end
else
  for i = 1, 5 do
    changed = math.max(changed, call('PERSIST', KEYS[i]))
  end
end
return {0, changed}
