-- Fits value and log to the rate as an audit does, and has both live as long as the hash. Grants nothing,
-- and writes nothing if that is so already. Twin: src/store/calls/repair.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- ARGV   1 the time in epoch ms; '' for the server's clock
--        2 the first 17 bytes of an entry of the call's id, from which its debts have theirs
--        3 1: only say what would be done
-- reply  {type, permits of the debt, rate, interval, keep-alive, 1 if there is an integer value, that value,
--        the value afterwards, permits that have expired, keys that get a time to live, permits taken out
--        of the log, entries that are dated too far ahead}
--        or {-1, …}, {-2, …}, {-3, …}: see part/config.lua and part/live_log.lua
local problem = read_config()
if problem then
  return problem
end
local before = read_all()
local debts, deficit, is_off = {}, 0, false
-- Of a limiter that was not used there is nothing to fit.
if before or count > 0 then
  deficit = audit()
  if not deficit then
    return foreign
  end
  heal(deficit)
  read_id(ARGV[2])
  debts = entries_of(debt, 32768)
  is_off = deficit ~= 0 or not before or value ~= before + credit
end
local far_ahead = '(' .. int(now + MOST_AHEAD_MS)
local ahead = call('ZCOUNT', log_key, far_ahead, '+inf')

local endless = 0
local lives = keep_alive > 0 or call('PTTL', KEYS[1]) > 0
for _, key in ipairs({KEYS[1], value_key, log_key}) do
  if lives and call('PTTL', key) == -1 then
    endless = endless + 1
  end
end

local reply = {per_client, deficit > 0 and debt or 0, rate, interval, keep_alive, before and 1 or 0, before or 0,
  value or rate, credit, endless, math.max(0, -deficit), ahead}
if ARGV[3] == '1' then
  return reply
end

-- Writes, from here on.
if is_off then
  drop_expired()
  write_trimmed()
  for i = 1, #debts do
    call('ZADD', log_key, int(now), debts[i])
  end
  write_value(before, true)
end
if ahead > 0 then
  -- They may be in use, so they come back an interval from now.
  local list = call('ZRANGEBYSCORE', log_key, far_ahead, '+inf')
  for i = 1, #list do
    call('ZADD', log_key, int(now), list[i])
  end
end
if is_off or endless > 0 or ahead > 0 then
  refresh_lifetime()
end
return reply
