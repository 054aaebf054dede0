-- The value after the drop. `value` is nil where it is missing or no integer. Sums are compared as
-- differences from the rate: above 2^53 they would not be exact.
local value

-- Whether type or rate in the hash are not those that this client last saw there: `seen` is its
-- type, rate, interval and keep-alive, or '' for nothing.
local function is_another(seen)
  local seen_type, seen_rate = string.match(seen, '^(%d) (%d+)')
  return seen ~= '' and (tonumber(seen_type) ~= per_client or tonumber(seen_rate) ~= rate)
end

-- Fits the value to the rate and the log. Answers whether a foreign entry stood in the way (nil), whether the value is exact now
-- (true), or is only what it was and what has expired (false).
local function settle(seen)
  local left = count - dropped
  if not value or is_another(seen) then
    if not sum_log() then
      return nil
    end
    value = rate - log_total
    return true
  end
  -- Downwards only: what seems to be missing may be a log that was lost, and then it was used.
  if seen == '' then
    if not sum_log() then
      return nil
    end
    if value > rate - credit - log_total then
      value = rate - log_total
      return true
    end
  end
  -- What an older Redisson logged says nothing of what else was used.
  if credit > 0 and left == 0 then
    value = rate
    return true
  end
  if credit > 0 and value > rate - credit then
    if not sum_log() then
      return nil
    end
    value = rate - log_total
    return true
  end
  value = value + credit
  return false
end
