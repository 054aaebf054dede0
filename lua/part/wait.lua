-- How long a request has to wait: the log is scanned, oldest entry first, until enough permits have
-- expired. Twin: src/store/memory/wait.rs.
--
-- Reads  call; rate, interval, log_key; now, count, dropped, members, permits, read_entries,
--        looked_at (part/live_log.lua); trimmed (part/trim.lua); SHORT_LOG, MAX_EXACT
-- Sets   scores, as needed; the script sets granted_score, granted and view
local granted_score, granted = 0, 0 -- what this call grants: it counts, and is not written yet
-- At most SHORT_LOG entries are scanned: those after the drop, or if there is a view, those in it:
-- {permits = …, all = the number of entries in all}.
local view
local scores = {}

local function score_at(k)
  if not scores[k] then
    scores[k] = tonumber(call('ZSCORE', log_key, members[trimmed + k]))
  end
  return scores[k]
end

-- The score with which `needed` permits are together; nil if a foreign entry is live. Then whether
-- that is only the last score scanned, or, after false, how many permits there are in all.
local function find_score(needed)
  local all = view and view.all or count - dropped - trimmed
  local reach = math.min(all, SHORT_LOG)
  local list, base = permits, trimmed
  if view then
    list, base = view.permits, 0
  end
  local sum, k = 0, 0
  while k < reach and sum < needed do
    k = k + 1
    if not list[base + k] then
      read_entries(base + k)
    end
    if list[base + k] < 0 then
      if granted == 0 then
        return looked_at(list[base + k])
      end
      break
    end
    sum = sum + list[base + k]
  end
  if sum >= needed and (granted == 0 or score_at(k) < granted_score) then
    return score_at(k), false
  end
  if granted > 0 and sum < needed and k == reach and
      (k == 0 or list[base + k] >= 0 and score_at(k) < granted_score) then
    if all <= SHORT_LOG then
      sum = sum + granted
      if sum >= needed then
        return granted_score, false
      end
    end
  elseif granted > 0 then
    -- The granted permits come before the first entry that is not older.
    local waiting = true
    sum, k = 0, 0
    while k < reach do
      k = k + 1
      local p, score = looked_at(list[base + k]), score_at(k)
      if not p then
        return nil
      end
      if waiting and granted_score <= score then
        waiting, sum = false, sum + granted
        if sum >= needed then
          return granted_score, false
        end
      end
      sum = sum + p
      if sum >= needed then
        return score, false
      end
    end
    if waiting and all <= SHORT_LOG then
      sum = sum + granted
      if sum >= needed then
        return granted_score, false
      end
    end
  end
  if all > SHORT_LOG then
    return score_at(reach), true
  end
  return false, sum
end

-- The wait for this many permits, in ms, and whether it is only a lower bound; nil if a foreign entry
-- is live.
local function wait_for(needed)
  if needed <= 0 then
    return 1, false
  end
  local score, more = find_score(needed)
  if score == nil then
    return nil
  end
  local ms
  if score then
    ms = score + interval - now
  else
    -- More than the log holds: this many full rates must come back first.
    local rounds = math.ceil((needed - more) / rate)
    local rest = needed - rounds * rate
    ms, more = rounds * interval, true
    if rest > 0 then
      ms = ms + find_score(rest) + interval - now
    end
  end
  -- Beyond 2^53 sums are not exact any more.
  return math.max(1, math.min(math.ceil(ms), MAX_EXACT)), more
end
