-- The memory that all keys take, in bytes.
-- Twin: src/store/calls/keys.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- reply  {0, bytes}
local bytes = 0
for i = 1, #KEYS do
  bytes = bytes + (redis.call('MEMORY', 'USAGE', KEYS[i]) or 0)
end
return {0, bytes}
