-- Removes the time to live of all keys. A PER_CLIENT limiter gets a far one instead: other clients' keys are
-- out of reach, and each client's next call gives its own keys the hash's time to live.
-- Twin: src/store/calls/keys.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- reply  {0, 1 if any key had a time to live (for PER_CLIENT: one below five years)}

local changed = 0
if fields[3] == '1' then
  local own, near = {KEYS[1], KEYS[4], KEYS[5]}, 0
  for i = 1, 3 do
    local left = call('PTTL', own[i])
    if left >= 0 and left < ENDLESS_TTL_MS then
      near = 1
    end
  end
  for i = 1, 3 * near do
    call('PEXPIRE', own[i], int(FAR_TTL_MS))
  end
  changed = near
else
  for _, i in ipairs({1, 4, 5}) do
    changed = math.max(changed, call('PERSIST', KEYS[i]))
  end
end
-- In PER_CLIENT no client uses these: they are left over from the other mode.
changed = math.max(changed, call('PERSIST', KEYS[2]), call('PERSIST', KEYS[3]))
return {0, changed}
