-- Takes permits out of the log, oldest grant first, and gives them back to the value.
-- Twin: src/store/calls/release.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- ARGV   1 the time in epoch ms; '' for the server's clock
--        2 the permits
--        3 what the client last saw in the hash: type, rate, interval and keep-alive, with one
--          space between; '' for nothing
-- reply  {type, permits taken, rate, interval, keep-alive}
--        or {-1, …}, {-2, …}, {-3, …}: see part/config.lua and part/live_log.lua
local problem = read_config()
if problem then
  return problem
end
local value_before = read_all()
if settle(ARGV[3]) == nil then
  return foreign
end
local changed = credit > 0 or value ~= value_before
local short = count - dropped <= SHORT_LOG
if short and not sum_log() then
  return foreign
end
local wanted = tonumber(ARGV[2])
local taken = trim(wanted)
if not taken then
  return foreign
end
taken = math.min(taken, wanted)
-- What was too much before, after a release by Java, is not made more.
local raised = math.min(value + taken, short and rate - log_total or rate)
local rise = math.max(value, raised) - value

-- Writes, from here on.
drop_expired()
write_trimmed()
value = value + rise
write_value(value_before, changed)
refresh_lifetime()
return {per_client, taken, rate, interval, keep_alive}
