-- The value after the drop. `value` is nil where it is missing or no integer. Sums are compared as
-- differences from the rate: above 2^53 they would not be exact.
local value

-- Fits the value to the rate and the log: `seen` is the rate that this client last saw, nil for
-- none. Answers whether a foreign entry stood in the way (nil), whether the value is exact now
-- (true), or is only what it was and what has expired (false).
local function settle(seen)
  local left = count - dropped
  if not value or seen and seen ~= rate then
    if not sum_log() then
      return nil
    end
    value = rate - log_total
    return true
  end
  if not seen and left <= SHORT_LOG then
    if not sum_log() then
      return nil
    end
    if value > rate - credit - log_total then
      value = rate - log_total
      return true
    end
  end
  if dropped > 0 and left == 0 then
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
