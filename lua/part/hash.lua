-- Reads the limiter's hash: `fields` is its rate, interval, type and keep-alive as text, false
-- where missing. Raises WRONGTYPE where the key is no hash.
local call = redis.call
local fields = call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime')
