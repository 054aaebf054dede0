-- The wait of a request: scans the log, oldest entry first, until enough permits have expired. Twin:
-- src/store/memory/wait.rs.
--
-- Reads  call, look_at (part/live_log.lua), limits; in s: the log, now, debt, and
--        granted, date  the permits that this call has granted so far, not written yet, and their date

-- The date at which the oldest entries (looking at the first `most`) and `more` permits of the date `dated` reach
-- `needed` together, or nil if they never do; and the sum that they reach.
local function find_date(s, needed, most, more, dated)
  local sum, k, reach = more, 0, math.min(s.others - s.trimmed, most)
  while sum < needed and k < reach do
    k = k + 1
    sum = sum + (s.permits[s.trimmed + k] or look_at(s, s.trimmed + k))
  end
  if sum < needed then
    return nil, sum
  end
  local score = k > 0 and tonumber(call('ZSCORE', s.log_key, s.members[s.trimmed + k]))
  return math.max(score or dated, dated), sum
end

-- The date of the entry that completes `needed` permits, looking at the first `most` entries; nil if there are too
-- few. Then whether it is only the date of the last entry looked at, and the sum of all permits.
local function find_score(s, needed, most)
  local score, sum = find_date(s, needed, most, 0, -math.huge)
  local is_found = score
  if s.debt + s.granted > 0 then
    -- The debt and the grant count from their own dates, which may be later than the date without them.
    for _, more in ipairs({{s.debt, s.now}, {s.debt + s.granted, s.date}}) do
      local with_more
      with_more, sum = find_date(s, needed, most, more[1], more[2])
      score = with_more and math.min(score or with_more, with_more)
    end
  end
  if not is_found and s.others - s.trimmed > most then
    local last = tonumber(call('ZSCORE', s.log_key, s.members[s.trimmed + most]))
    if not score or score > last then
      return last, true
    end
  end
  return score, false, sum
end

-- The wait for this many permits, in ms, and whether it is only a lower bound.
local function wait_for(s, needed)
  if needed <= 0 then
    return 1, false
  end
  local score, is_bound, sum = find_score(s, needed, SHORT_LOG)
  local ms = 0
  if not score then
    -- Permits beyond those in the log: this many full rates must come back first.
    local rounds = math.ceil((needed - sum) / s.rate)
    ms, is_bound, needed = rounds * s.interval, true, needed - rounds * s.rate
    score = needed > 0 and find_score(s, needed, SHORT_LOG)
  end
  if score then
    ms = ms + score + s.interval - s.now
  end
  -- Sums are not exact above 2^53.
  return math.max(1, math.min(math.ceil(ms), MAX_EXACT)), is_bound
end
