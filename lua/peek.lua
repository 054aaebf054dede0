-- What an acquire would see. Writes nothing.
-- Twin: src/store/calls/peek.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- ARGV   1 the time in epoch ms; '' for the server's clock
--        2 the permits whose wait is asked for; 0 for none
--        3 what the client last saw in the hash: type, rate, interval and keep-alive, with one
--          space between; '' for nothing
-- reply  {type, available, rate, interval, keep-alive, wait in ms, 1 if that is a lower bound}
--        or {-1, …}, {-2, …}, {-3, …}: see part/config.lua and part/live_log.lua
local problem = read_config()
if problem then
  return problem
end
read_all()
if not look_at_oldest() then
  return foreign
end
local is_summed = settle(ARGV[3])
if is_summed == nil then
  return foreign
end
local asked, wait, at_least = tonumber(ARGV[2]), 0, false
local audit_limit = ARGV[3] == '' and math.huge or 0
local deficit = find_deficit(is_summed, asked > math.max(0, value), audit_limit)
if not deficit then
  return foreign
end
heal(deficit)
granted_score, granted = now, debt
if asked > math.max(0, value) then
  wait, at_least = wait_for(asked - value)
  if not wait then
    return foreign
  end
end
local available = math.max(0, math.min(value, rate))
return {per_client, available, rate, interval, keep_alive, wait, at_least and 1 or 0}
