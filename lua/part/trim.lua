-- Taking permits out of the log, oldest entry first. Twin: src/store/memory/live_log.rs.
--
-- Reads  call, with_permits, PAUSE (part/entry.lua), look_at (part/live_log.lua)
-- Sets   in s: permits, changes, log_total (part/live_log.lua), and
--        trimmed  the number of s.members taken out whole
--        lowered  the permits left in the next one, nil if it is unchanged

-- Takes up to `wanted` permits out of the log, and returns how many it took: more than `wanted` if an entry
-- cannot be lowered, because then the whole entry is taken out. It takes nothing out of a pause, which would
-- not hold any more, and nothing behind it.
local function trim(s, wanted)
  local taken = 0
  while taken < wanted and look_at(s, s.trimmed + 1) do
    local at = s.trimmed + 1
    local member, p = s.members[at], look_at(s, at)
    if string.sub(member, 1, 15) == PAUSE then
      return taken
    end
    local rest = taken + p - wanted
    local as_left = rest > 0 and with_permits(member, rest)
    -- If another entry with the same id and the remaining permits stays in the log, lowering this one would
    -- overwrite it, and its permits would be lost: so the whole entry is taken out.
    if as_left and (s.changes[as_left] == false or not call('ZSCORE', s.log_key, as_left)) then
      s.lowered, s.permits[at], s.changes[member] = rest, rest, rest
    else
      rest, s.trimmed, s.changes[member] = 0, at, false
    end
    s.log_total = s.log_total and s.log_total - (p - rest)
    taken = taken + p - rest
  end
  return taken
end
