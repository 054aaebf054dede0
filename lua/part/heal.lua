-- Phase 2: value and log together, if they are not the rate. Twin: src/store/memory/heal.rs.
--
-- Reads  rate; count, dropped, log_total, sum_log (part/live_log.lua); trim; SHORT_LOG,
--        MAX_DEBT_PARTS, MAX_ENTRY_PERMITS (part/limits.lua)
-- Sets   value (part/settle.lua), and
local debt = 0 -- the permits of the debt to write

-- What value and log together lack of the rate: negative for an excess; 0 also if this call does
-- not look, which it does on a log of up to `audit_limit` entries, and for a refusal on a short one.
-- nil if a foreign entry is live. `is_summed`: phase 1 has summed the log.
local function find_deficit(is_summed, refuses, audit_limit)
  local left = count - dropped
  if not (is_summed or left <= audit_limit or refuses and left <= SHORT_LOG) then
    return 0
  end
  if not sum_log() then
    return nil
  end
  return rate - log_total - value
end

-- A deficit becomes a debt in the log, which comes back when it expires. An excess is taken out of
-- the log, and out of the value if the log does not hold that much; what was taken too much is a debt.
local function heal(deficit)
  if deficit < 0 then
    deficit = deficit + trim(-deficit)
    value = value + math.min(0, deficit)
  end
  debt = math.max(0, math.min(deficit, MAX_DEBT_PARTS * MAX_ENTRY_PERMITS))
end
