-- The limiter's hash. Raises WRONGTYPE if the key is not a hash.
--
-- Reads  KEYS
-- Sets   call: redis.call; fields: rate, interval, type and keep-alive as text, false if missing
local call = redis.call
local fields = call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime')
