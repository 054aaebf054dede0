-- Reads the state that an acquire would see. Writes nothing.
-- Twin: src/store/calls/peek.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- ARGV   1 the time in epoch ms; '' for the server's clock
--        2 the number of permits to compute the wait for; 0 for none
--        3 the type, rate, interval and keep-alive that the client last saw in the hash, with one
--          space between them; '' for nothing
-- reply  {type, available, rate, interval, keep-alive, wait in ms, 1 if that is a lower bound}
--        or {-1, …}, {-2, …}, {-3, …}: see part/config.lua and part/live_log.lua
local problem = read_all(s)
if problem then
  return problem
end
look_at(s, 1)
read_seen(s, ARGV[3])
settle(s)
local asked, wait, at_least = tonumber(ARGV[2]), 0, false
heal(s, asked > math.max(0, s.value), s.is_another == nil and math.huge or 0)
s.date = s.now
if asked > math.max(0, s.value) then
  wait, at_least = wait_for(s, asked - s.value)
end
if s.foreign then
  return s.foreign
end
local available = math.max(0, math.min(s.value, s.rate))
return {s.per_client, available, s.rate, s.interval, s.keep_alive, wait, at_least and 1 or 0}
