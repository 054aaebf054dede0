-- Sets the rate of a limiter as Redisson's RGcra does: writes its configuration, and forgets what was used, here and by
-- RGcra itself.
--
-- KEYS   1 the bucket, 2 the configuration, 3 the value of RGcra
-- ARGV   maxBurst, rate, period
redis.call('HSET', KEYS[2], 'maxBurst', ARGV[1], 'rate', ARGV[2], 'period', ARGV[3])
redis.call('DEL', KEYS[1], KEYS[3])
return {0}
