-- Permits set aside for a large request, which others would take one by one as they come back. Twin:
-- src/store/memory/reserve.rs.
--
-- Reads  ARGV: 2 the call's entry; call, int, permits_of; interval, log_key (part/config.lua); now,
--        count, expired, dropped (part/live_log.lua); trimmed, lowered (part/trim.lua); debt
--        (part/heal.lua); value
-- Sets   foreign (part/live_log.lua)

-- Whether the log has a reservation, of another call, that is not due, or not for long.
local function is_kept()
  local mark = string.sub(ARGV[2], 2, 4)
  local list = call('ZRANGEBYSCORE', log_key, '(' .. int(now - RESERVATION_KEPT_MS), '+inf')
  for i = 1, #list do
    local member = list[i]
    local last = #member == 21 and string.byte(member, 17) or 0
    if last >= 64 and last < 128 and string.sub(member, 2, 4) == mark then
      return true
    end
  end
  return false
end

-- In how many ms `permits` are free that have to be reserved; nil if somebody else has a reservation, if
-- it would take too long, or if a foreign entry is live. Too long is what the request cannot wait, and
-- more than an interval, but for clients whose clocks are ahead.
local function find_reservation(permits, max_wait_ms)
  if value < 0 or is_kept() then
    return nil
  end
  local lacking, last, owed = permits - value, nil, debt
  local rank = expired
  while rank < count and lacking > 0 do
    local step = call('ZRANGE', log_key, int(rank), int(rank + 999), 'WITHSCORES')
    for i = 1, #step, 2 do
      local at, p, score = rank + (i + 1) / 2 - dropped, permits_of(step[i]), tonumber(step[i + 1])
      if score > now then
        -- The debt, which is not written yet.
        lacking, last, owed = lacking - owed, owed > 0 and now or last, 0
        if lacking <= 0 then
          break
        end
      end
      if at > trimmed then
        if not p then
          foreign = {-3, #step[i]}
          return nil
        end
        lacking, last = lacking - (at == trimmed + 1 and lowered or p), score
        if lacking <= 0 then
          break
        end
      end
    end
    rank = rank + #step / 2
  end
  if lacking > 0 and owed > 0 then
    lacking, last = lacking - owed, now
  end
  if lacking > 0 or not last then
    return nil
  end
  local wait = last + interval - now
  local longest = math.min(interval + math.floor(interval / 8), LONGEST_RESERVATION_MS, max_wait_ms)
  return wait <= longest and wait or nil
end
