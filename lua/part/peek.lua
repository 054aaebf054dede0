-- What an acquire would find.
--
-- Reads  read_all (part/read_all.lua), look_at (part/live_log.lua), read_seen, settle (part/settle.lua), heal, wait_for

-- The reply of peek.lua for this many permits. `seen`: as for read_seen.
local function peek(s, asked, seen)
  local problem = read_all(s)
  if problem then
    return problem
  end
  look_at(s, 1)
  read_seen(s, seen)
  settle(s)
  local wait, at_least = 0, false
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
end
