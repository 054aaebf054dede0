-- Takes permits out of the log, oldest grant first, and returns them to the value.
-- Twin: src/store/calls/give_back.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- ARGV   1 the time in epoch ms; '' for the server's clock
--        2 the permits
--        3 the type, rate, interval and keep-alive that the client last saw in the hash, with one
--          space between them; '' for nothing
-- reply  {type, permits taken, rate, interval, keep-alive}
--        or {-1, …}, {-2, …}, {-3, …}: see part/config.lua and part/live_log.lua
local problem = read_all(s)
if problem then
  return problem
end
read_seen(s, ARGV[3])
settle(s)
local is_short = s.others <= SHORT_LOG
if is_short then
  sum_log(s)
end
local wanted = tonumber(ARGV[2])
local taken = math.min(wanted, trim(s, wanted))
if s.foreign then
  return s.foreign
end

-- Write.
write_log(s)
-- After a release by Java there may be too many permits: do not add to the excess.
local most = is_short and s.rate - s.log_total or s.rate
write_value(s, s.known, math.max(s.value, math.min(s.value + taken, most)))
refresh_lifetime(s)
return {s.per_client, taken, s.rate, s.interval, s.keep_alive}
