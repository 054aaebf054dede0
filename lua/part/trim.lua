-- Taking permits out of the log, oldest entry first. Twin: src/store/memory/trim.rs.
--
-- Reads  call, with_permits; log_key; members, read_entries, looked_at (part/live_log.lua)
-- Sets   permits, log_total (part/live_log.lua), and
local trimmed = 0 -- the entries that are taken out whole
local lowered -- the permits left in the one after them, nil if it is as it was

-- Whether the log has this entry, with these permits instead of its own, once more and no earlier. Then it
-- must not be lowered to them: the other entry would be moved, and its permits be gone.
local function is_taken(member, p)
  local other = call('ZSCORE', log_key, with_permits(member, p))
  return other and tonumber(other) >= tonumber(call('ZSCORE', log_key, member))
end

-- Takes up to `wanted` permits out of what is kept in `members` and `permits`, and returns how many there
-- were: more than that if an entry cannot be lowered, which is taken out whole; nil if a foreign entry is
-- live.
local function trim(wanted)
  local taken = 0
  while taken < wanted do
    read_entries(trimmed + 1)
    local p = permits[trimmed + 1]
    if not p then
      break
    end
    if not looked_at(p) then
      return nil
    end
    local rest = taken + p - wanted
    if rest > 0 and not is_taken(members[trimmed + 1], rest) then
      lowered = rest
      permits[trimmed + 1] = rest
      taken = wanted
    else
      trimmed = trimmed + 1
      taken = taken + p
    end
  end
  if log_total then
    log_total = log_total - taken
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
