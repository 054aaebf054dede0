-- Permits set aside for a large request, which others would take one by one as they come back. Twin:
-- src/store/memory/reserve.rs.
--
-- Reads  call, int, limits; find_score (part/wait.lua); entry: the call's; in s: the log, value

-- In how many ms `permits` are free that have to be reserved; nil if the log has a reservation of another
-- call that is not due, or not for long, or if it would take too long. Too long is what the request cannot
-- wait, and more than an interval, but for clients whose clocks are ahead.
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
