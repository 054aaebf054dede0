-- How long a request has to wait: the log is scanned, oldest entry first, until enough permits have
-- expired. Twin: src/store/memory/wait.rs.
--
-- Reads  call, look_at (part/live_log.lua), limits; in s: the log, now, debt, and
--        granted, date  what this call grants so far, and with which date: it counts, and is not written yet

-- The date at which the oldest entries, of which the first `most` are looked at, and `more` permits of the date
-- `dated` come to `needed` together; nil if they never do. Then what they come to.
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

-- The date of the entry with which `needed` permits are together, if the first `most` are looked at; nil if there
-- are not as many. Then whether that is only the last one that was looked at, and how many there are in all.
local function find_score(s, needed, most)
  local score, sum = find_date(s, needed, most, 0, -math.huge)
  local is_found = score
  if s.debt + s.granted > 0 then
    -- They count from their own dates on, which may be later than those of the entries without them.
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
    -- More than the log holds: this many full rates must come back first.
    local rounds = math.ceil((needed - sum) / s.rate)
    ms, is_bound, needed = rounds * s.interval, true, needed - rounds * s.rate
    score = needed > 0 and find_score(s, needed, SHORT_LOG)
  end
  if score then
    ms = ms + score + s.interval - s.now
  end
  -- Beyond 2^53 sums are not exact any more.
  return math.max(1, math.min(math.ceil(ms), MAX_EXACT)), is_bound
end
