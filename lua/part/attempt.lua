-- The entries in the log under a call's own id. Twin: src/store/memory/attempt.rs.
--
-- Reads  call, int, permits_of; the arguments; part_number (part/grant.lua)

-- Sets s.own: the entries written by earlier attempts. If this attempt is a duplicate, or a later one came first,
-- sets it to the entries that those wrote, and returns their date. Sets s.kept: the live permits among them that
-- may be in use, as they may have been granted to a later attempt.
local function find_own(s)
  local is_plain = #entry == 21 and reserves ~= '1' and dates == ''
  if is_plain and total == '1' and not call('ZSCORE', s.log_key, entry) then
    return nil
  end
  local own, later, first, found = {}, {}, nil, {}
  local from = after ~= '' and '(' .. after or int(s.date)
  if is_plain and total * 10 < call('ZCOUNT', s.log_key, from, '+inf') then
    -- Others have leases. Looking one entry up takes as long as reading ten, so it costs less to look for each
    -- number of permits that the entry may have.
    for p = 1, total do
      local member = string.sub(entry, 1, 17) .. struct.pack('<I4', p)
      local score = call('ZSCORE', s.log_key, member)
      if score and (after ~= '' and score - after > 0 or after == '' and score - s.date >= 0) then
        found[#found + 1], found[#found + 2] = member, score
      end
    end
  else
    found = call('ZRANGEBYSCORE', s.log_key, from, '+inf', 'WITHSCORES')
  end
  for date in string.gmatch(dates, '%S+') do
    local there = call('ZRANGEBYSCORE', s.log_key, date, date, 'WITHSCORES')
    for i = 1, #there do
      found[#found + 1] = there[i]
    end
  end
  for i = 1, #found, 2 do
    local member, date = found[i], tonumber(found[i + 1])
    local part, p = part_number(s, member), permits_of(member) or 0
    -- An entry with more permits than the call asks for is not its own.
    if part and p > 0 and p <= total - 0 and s.changes[member] == nil then
      s.changes[member], own[#own + 1] = false, member
      -- A late attempt must not give up permits that were granted to a later one.
      if is_again ~= '1' or date >= s.date and
          (dates ~= '' or reserves == '1' and date ~= tonumber(reserved_date)) then
        later[#later + 1], first = member, math.min(first or date, date)
      end
      s.kept = s.kept + (after ~= '' and part < 16384 and date > s.now - s.interval and p or 0)
    end
  end
  s.own = first and later or own
  return first
end
