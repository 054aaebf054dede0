-- Where value and log together are not the rate: a deficit becomes a debt in the log, an excess
-- is taken out of it, and out of the value where the log has not so much.
local MAX_ENTRY = 4294967295 -- the most permits of one entry
local MOST_DEBT = 64 * MAX_ENTRY -- that one call writes; the rest at the next audit
local debt = 0

-- Answers false where a foreign entry is live.
local function heal()
  if not sum_log() then
    return false
  end
  local excess = value - (rate - log_total)
  if excess > 0 then
    value = value - (excess - trim(excess))
  else
    debt = -excess
  end
  return true
end
