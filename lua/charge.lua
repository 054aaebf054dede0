-- Writes permits into the log that were granted while the server was away: once, and whether they fit
-- or not, so that the value may become negative. Twin: src/store/calls/charge.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- ARGV   1 the time in epoch ms; '' for the server's clock
--        2 the entry (21 bytes)
--        3 its date
--        4 what the client last saw in the hash: type, rate, interval and keep-alive, with one
--          space between; '' for nothing
-- reply  {type, permits left, rate, interval, keep-alive, 1 if the entry is in the log}
--        or {-1, …}, {-2, …}, {-3, …}: see part/config.lua and part/live_log.lua
local problem = read_config()
if problem then
  return problem
end
local value_before = read_all()
if settle(ARGV[4]) == nil then
  return foreign
end
local changed = credit > 0 or value ~= value_before

read_id(ARGV[2])
local is_there = false
local dated = call('ZRANGEBYSCORE', log_key, ARGV[3], ARGV[3])
for i = 1, #dated do
  is_there = is_there or part_number(dated[i]) ~= nil
end
local counts = tonumber(ARGV[3]) > now - interval
local permits = counts and not is_there and permits_of(ARGV[2]) or 0

-- Writes, from here on.
drop_expired()
if permits > 0 then
  call('ZADD', log_key, ARGV[3], ARGV[2])
end
value = value - permits
write_value(value_before, changed)
refresh_lifetime()
return {per_client, value, rate, interval, keep_alive, counts and 1 or 0}
