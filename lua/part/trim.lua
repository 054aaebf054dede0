-- Taking permits out of the log, oldest entry first. Twin: src/store/memory/trim.rs.
--
-- Reads  call, with_permits; log_key; members, read_entries, looked_at (part/live_log.lua)
-- Sets   permits, log_total (part/live_log.lua), and
local trimmed = 0 -- the entries that are taken out whole
local lowered -- the permits left in the one after them, nil if it is as it was

-- Takes up to `wanted` permits out of what is kept in `members` and `permits`, and returns how
-- many there were; nil if a foreign entry is live.
local function trim(wanted)
  local taken = 0
  while wanted > 0 do
    read_entries(trimmed + 1)
    local p = permits[trimmed + 1]
    if not p then
      break
    end
    if not looked_at(p) then
      return nil
    end
    local rest = p - wanted
    -- An entry with the same id and as many permits as would be left must not be moved: its permits would
    -- be gone. So the whole entry is taken out then.
    if rest > 0 and not call('ZSCORE', log_key, with_permits(members[trimmed + 1], rest)) then
      lowered = rest
      permits[trimmed + 1] = lowered
    else
      rest = 0
      trimmed = trimmed + 1
    end
    if log_total then
      log_total = log_total - (p - rest)
    end
    taken, wanted = taken + math.min(p, wanted), wanted - p
  end
  return taken
end

-- Writes what `trim` has taken.
local function write_trimmed()
  for i = 1, trimmed do
    call('ZREM', log_key, members[i])
  end
  if lowered then
    local member = members[trimmed + 1]
    local score = call('ZSCORE', log_key, member)
    call('ZREM', log_key, member)
    call('ZADD', log_key, score, with_permits(member, lowered))
  end
end
