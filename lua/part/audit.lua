-- Value and log in full, whatever the length of the log. Twin: src/store/memory/audit.rs.
--
-- Reads  settle (part/settle.lua), find_deficit (part/heal.lua)
-- Sets   value (part/settle.lua)

-- Settles the value as for a client that has seen nothing, and returns what value and log together lack of
-- the rate, negative for an excess; nil if a foreign entry is live.
local function audit()
  local is_summed = settle('')
  if is_summed == nil then
    return nil
  end
  return find_deficit(is_summed, false, math.huge)
end
