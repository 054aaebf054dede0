-- Reads the numbers of permits, and writes nothing. Twin: src/store/calls/semaphore/change.rs.
--
-- reply  {0, 1 if there is a semaphore, available, acquired, all}
local out = call('ZCOUNT', KEYS[2], 0, '+inf')
local expired = call('ZCOUNT', KEYS[2], 0, now)
return {0, v and 1 or 0, v and v + expired or 0, out - expired, v and v + out or 0}
