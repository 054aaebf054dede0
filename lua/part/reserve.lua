-- Permits set aside for a large request: otherwise others would take them one by one as they come back. Twin:
-- src/store/memory/wait.rs.
--
-- Reads  call, int, limits; find_score (part/wait.lua); entry: the call's own; in s: the log, value

-- The time in ms until `permits` to be reserved are free. nil if the log has a reservation of another call that is
-- not due yet, or only recently, or if it would take too long: longer than the request can wait, or longer than
-- an interval, with some allowance for clients whose clocks are ahead.
local function find_reservation(s, permits, max_wait_ms)
  if s.value < 0 then
    return nil
  end
  local mark, kept_ms = string.sub(entry, 2, 4), math.min(RESERVATION_KEPT_MS, s.interval)
  local list = call('ZRANGEBYSCORE', s.log_key, '(' .. int(s.now - kept_ms), '+inf')
  for i = 1, #list do
    local member = list[i]
    local last = #member == 21 and string.byte(member, 17) or 0
    if last >= 64 and last < 128 and string.sub(member, 2, 4) == mark and s.changes[member] ~= false then
      return nil
    end
  end
  local date = find_score(s, permits - s.value, math.huge)
  local wait = date and date + s.interval - s.now
  local longest =
    math.min(s.interval + math.floor(s.interval / 8), LONGEST_RESERVATION_MS, max_wait_ms)
  return wait and wait <= longest and wait or nil
end
