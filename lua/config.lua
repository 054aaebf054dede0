-- Reads the rate.
-- Twin: src/store/calls/rates.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- reply  {type, 1, rate, interval, keep-alive}
--        or {0, 0} if there is no limiter, {-4, …}, {-2, …}: see part/stored_rate.lua
local problem = read_stored_rate(s)
if problem then
  return problem
end
return {s.per_client, 1, s.rate, s.interval, s.keep_alive}
