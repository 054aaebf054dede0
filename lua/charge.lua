-- Writes permits into the log that were granted while the server was away: once, and even if they do not fit,
-- so that the value may become negative. Twin: src/store/calls/charge.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- ARGV   1 the time in epoch ms; '' for the server's clock
--        2 the entry (21 bytes)
--        3 its date
--        4 the type, rate, interval and keep-alive that the client last saw in the hash, with one
--          space between them; '' for nothing
-- reply  {type, permits left, rate, interval, keep-alive, 1 if the entry is in the log}
--        or {-1, …}, {-2, …}, {-3, …}: see part/config.lua and part/live_log.lua
local problem = read_all(s)
if problem then
  return problem
end
read_seen(s, ARGV[4])
settle(s)
read_id(s, ARGV[2])
local is_there = false
local dated = call('ZRANGEBYSCORE', s.log_key, ARGV[3], ARGV[3])
for i = 1, #dated do
  is_there = is_there or part_number(s, dated[i]) ~= nil
end
local counts = tonumber(ARGV[3]) > s.now - s.interval
local permits = counts and not is_there and permits_of(ARGV[2]) or 0
if s.foreign then
  return s.foreign
end

-- Write.
write_log(s)
if permits > 0 then
  call('ZADD', s.log_key, ARGV[3], ARGV[2])
end
write_value(s, s.known, s.value - permits)
refresh_lifetime(s)
return {s.per_client, s.value - permits, s.rate, s.interval, s.keep_alive, counts and 1 or 0}
