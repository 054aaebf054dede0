-- Reads the configuration of Redisson's RGcra, which are the parameters of a bucket. It has no twin: they
-- are on servers only.
--
-- KEYS   2 its hash
local config = call('HMGET', KEYS[2], 'maxBurst', 'rate', 'period')
if not (config[1] and config[2] and config[3]) then
  return {-9}
end
for i, name in ipairs({'maxBurst', 'rate', 'period'}) do
  local n = string.find(config[i], i < 3 and '^%d+$' or '^%d+%.?%d*$') and tonumber(config[i])
  if not n or n >= 9007199254740992 or i > 1 and n <= 0 then
    return {-8, 0, name .. '=' .. config[i]}
  end
end
-- As its command has it: the time between two permits in whole microseconds.
local burst, every = config[1] + 1, max(1, floor(config[3] * 1000000 / config[2] + 0.5))
if burst > 4294967295 or floor(every * burst) >= 3155760000000000 then
  return {-8, 0, 'c=' .. format('b1:%.0f,1,%.0f,%.0f', burst, every, burst)}
end
ARGV[1], ARGV[6] = 'b1' .. pack('<I4I4I7', burst, 1, every), 'config'
