-- Removes the time to live of all keys, whatever they hold: a semaphore has no modes.
-- Twin: src/store/calls/keys.rs.
--
-- KEYS   those of a semaphore
-- reply  {0, 1 if any key had a time to live}
local changed = 0
for i = 1, #KEYS do
  changed = math.max(changed, redis.call('PERSIST', KEYS[i]))
end
return {0, changed}
