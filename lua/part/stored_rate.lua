-- The rate of a limiter that may not exist.
--
-- Reads  call, KEYS, read_config (part/config.lua)

-- Reads the rate. Returns the reply of the call if that fails: {0, 0} if there is no limiter;
-- {-4, missing fields: 1 rate + 2 interval + 4 type}, {-2, …}: see part/config.lua
local function read_stored_rate(s)
  if call('EXISTS', KEYS[1]) == 0 then
    return {0, 0}
  end
  local problem = read_config(s)
  return problem and {problem[1] == -1 and -4 or problem[1], problem[2], problem[3]}
end
