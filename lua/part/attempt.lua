-- Which attempt of a call this is, and what is in the log under the call's id. Twin:
-- src/store/memory/attempt.rs.
--
-- Reads  ARGV; call, int, permits_of, with_permits; total_text; log_key (part/config.lua);
--        MAX_ENTRY_PERMITS
-- Sets   what is declared here
local audit = ARGV[3] == '' -- a client's first call is one
local hold = 0
-- What a client that keeps to its share knows: whether Redisson is a party in any case (0 or 1), the
-- permits that have been left by everybody for long enough, after how many ms more will have been,
-- and a count of rounds. nil: requests take whatever is free.
local terms
local earlier, dates = 'n', {} -- the words of ARGV[7] behind those three
if (ARGV[7] or '') ~= '' then
  for word in string.gmatch(ARGV[7], '%S+') do
    dates[#dates + 1] = word
  end
  audit = table.remove(dates, 1) == '1' or audit
  hold = tonumber(table.remove(dates, 1))
  local word = table.remove(dates, 1)
  if word ~= '-' then
    terms = {}
    for number in string.gmatch(word, '%d+') do
      terms[#terms + 1] = tonumber(number)
    end
  end
  earlier = table.remove(dates, 1)
end
local id, tail = string.sub(ARGV[2], 2, 15), struct.unpack('<I2', ARGV[2], 16)

-- Which part of the call's grant a member is; nil if it is none.
local function part_number(member)
  if #member == 21 and string.byte(member, 1) == 16 and string.sub(member, 2, 15) == id then
    local part = bit.bxor(struct.unpack('<I2', member, 16), tail)
    return part < 32768 and part or nil
  end
end

-- Entries that hold `total` permits: parts of a grant, or debts if `mask` is 32768.
local function entries_of(total, mask)
  local list, k = {}, 0
  while total > 0 do
    local part = math.min(total, MAX_ENTRY_PERMITS)
    list[k + 1] = struct.pack('<Bc0I2I4', 16, id, bit.bxor(tail, mask + k), part)
    total, k = total - part, k + 1
  end
  return list
end

-- The entries of this call's id and their scores: an earlier attempt wrote them, or a later one that
-- came first. `date` is that of this attempt.
local function find_own(date)
  local found = {}
  if earlier == 'd' then
    for i = 1, #dates do
      local there = call('ZRANGEBYSCORE', log_key, dates[i], dates[i], 'WITHSCORES')
      for k = 1, #there do
        found[#found + 1] = there[k]
      end
    end
  else
    local after = dates[1]
    if not after and ARGV[1] == '' and (ARGV[5] or '') ~= '' then
      after = string.sub(ARGV[5], 2)
    end
    if total_text == '1' then
      -- Its only entry is this very member.
      local score = call('ZSCORE', log_key, ARGV[2])
      if score and (after and score - after > 0 or not after and score - date >= 0) then
        found = {ARGV[2], score}
      end
    else
      local from = after and '(' .. after or int(date)
      found = call('ZRANGEBYSCORE', log_key, from, '+inf', 'WITHSCORES')
    end
  end
  local own, scores, known = {}, {}, {}
  for i = 1, #found, 2 do
    local member = found[i]
    if part_number(member) and not known[member] then
      known[member] = true
      own[#own + 1], scores[#own + 1] = member, found[i + 1]
    end
  end
  return own, scores
end

-- Takes permits out of the parts of a grant of this date, the last part first.
local function give_back(parts, permits, date)
  table.sort(parts, function(a, b) return part_number(a) > part_number(b) end)
  for i = 1, #parts do
    local p = permits_of(parts[i])
    local taken = math.min(p, permits)
    if taken > 0 then
      permits = permits - taken
      call('ZREM', log_key, parts[i])
      if taken < p then
        call('ZADD', log_key, date, with_permits(parts[i], p - taken))
      end
    end
  end
end
