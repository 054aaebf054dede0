-- Phase 2: repairing value and log if together they are not the rate. Twin: src/store/memory/settle.rs.
--
-- Reads  sum_log (part/live_log.lua), trim, limits
-- Sets   in s: value (part/settle.lua), and
--        deficit  the permits missing from the rate: negative for an excess; 0 also if this call does not
--                 look
--        debt     the permits of the debt to write

-- Looks only if the log has been summed, or has no more than `audit_limit` entries, or is short and a request is
-- refused. A deficit becomes a debt in the log, which comes back when it expires. An excess is taken out of
-- the log, and out of the value if the log holds less; permits taken beyond the excess become a debt.
local function heal(s, refuses, audit_limit)
  if s.is_summed or s.others <= audit_limit or refuses and s.others <= SHORT_LOG then
    s.deficit = s.rate - sum_log(s) - s.value
    local debt = s.deficit
    if debt < 0 then
      debt = debt + trim(s, -debt)
      s.value = s.value + math.min(0, debt)
    end
    s.debt = math.max(0, math.min(debt, MAX_DEBT_PARTS * MAX_ENTRY_PERMITS))
  end
end
