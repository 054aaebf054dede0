-- Fits value and log to the rate as an audit does, and gives them the lifetime of the hash. Grants nothing, and
-- writes nothing if they already fit. Twin: src/store/calls/repair.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- ARGV   1 the time in epoch ms; '' for the server's clock
--        2 the first 17 bytes of an entry of the call's id, from which the ids of debts are derived
--        3 1 to report only what would be done
-- reply  {type, permits of the debt, rate, interval, keep-alive, 1 if there is an integer value, that value,
--        the value afterwards, permits that have expired, keys that get a time to live, permits taken out
--        of the log, entries that are dated too far ahead}
--        or {-1, …}, {-2, …}, {-3, …}: see part/config.lua and part/live_log.lua
local problem = read_all(s)
if problem then
  return problem
end
s.value = s.rate
local is_off = false
-- A limiter that was not used has nothing to fit.
if s.known or s.size > 0 then
  settle(s)
  heal(s, false, math.huge)
  is_off = s.deficit ~= 0 or not s.known or s.value - s.known ~= s.credit
end
if s.foreign then
  return s.foreign
end
-- The entries that are dated too far ahead, as the log is by now. A pause may last longer.
local function read_ahead()
  local ahead, list = {}, call('ZRANGEBYSCORE', s.log_key, '(' .. int(s.now + MOST_AHEAD_MS), '+inf')
  for i = 1, #list do
    if string.sub(list[i], 1, 15) ~= PAUSE then
      ahead[#ahead + 1] = list[i]
    end
  end
  return ahead
end
local ahead = read_ahead()

local endless = 0
local lives = s.keep_alive > 0 or call('PTTL', KEYS[1]) > 0
for _, key in ipairs({KEYS[1], s.value_key, s.log_key}) do
  if lives and call('PTTL', key) == -1 then
    endless = endless + 1
  end
end

local reply = {s.per_client, s.debt, s.rate, s.interval, s.keep_alive, s.known and 1 or 0,
  s.known or 0, s.value, s.credit, endless, math.max(0, -s.deficit), #ahead}
if ARGV[3] == '1' then
  return reply
end

-- Write.
if is_off then
  write_log(s)
  read_id(s, ARGV[2])
  write_entries(s, s.debt, 32768, int(s.now))
  call('SET', s.value_key, int(s.value))
end
-- These permits may be in use, so they come back an interval from now; but for those just taken out.
for _, member in ipairs(read_ahead()) do
  call('ZADD', s.log_key, int(s.now), member)
end
if is_off or endless > 0 or #ahead > 0 then
  refresh_lifetime(s)
end
return reply
