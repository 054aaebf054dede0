-- The beginning of a policy's script: the time, and short names.
--
-- ARGV   9 the time in epoch microseconds; nothing for the server's clock
local math, struct = math, struct
local call, format, floor, ceil, min, max = redis.call, string.format, math.floor, math.ceil, math.min, math.max
local pack, numbers = struct.pack, struct.unpack
-- The time of the decision.
local is_told, now = (ARGV[9] or '') ~= '', nil
if is_told then
  now = max(0, min(ARGV[9] - 0, 5000000000000000))
else
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
