-- The beginning of a semaphore's script. The argument is the time in epoch ms; '' for the server's clock.
local call, floor, min, max = redis.call, math.floor, math.min, math.max
local now = tonumber(ARGV[1])
if not now then
  local t = call('TIME')
  now = t[1] * 1000 + floor(t[2] / 1000)
end
