-- The rate.
-- Twin: src/store/memory/config.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- reply  {type, 1, rate, interval, keep-alive}; {0, 0} if there is no limiter
--        or {-4, missing fields: 1 rate + 2 interval + 4 type}, {-2, …}: see part/config.lua
if call('EXISTS', KEYS[1]) == 0 then
  return {0, 0}
end
local problem = read_config()
if problem then
  return {problem[1] == -1 and -4 or problem[1], problem[2], problem[3]}
end
return {per_client, 1, rate, interval, keep_alive}
