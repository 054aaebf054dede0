-- Reads the limiter for a call that drops all expired entries.
--
-- Reads  call, ARGV, KEYS; integer; read_config (part/config.lua), set_own, read_log (part/live_log.lua),
--        now_text (part/clock.lua)
-- Sets   s.now, s.known: the stored value

-- Returns the error reply if the rate cannot be read.
local function read_all(s)
  s.now = tonumber(now_text)
  local problem = read_config(s)
  if not problem then
    s.known = integer(call('GET', s.value_key))
    read_log(s, math.huge)
  end
  return problem
end
