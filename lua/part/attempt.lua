-- Which attempt of a call this is, and what is in the log under the call's id. Twin:
-- src/store/memory/attempt.rs.
--
-- Reads  ARGV; call, int, permits_of; total_text; log_key (part/config.lua); read_id, part_number
--        (part/grant.lua)
-- Sets   what is declared here
-- The longest log that is summed in any case; a client's first call sums any.
local audit_limit = ARGV[3] == '' and math.huge or 0
local hold = 0
-- The only request is served by a reservation if it does not fit. One that it has already is given up
-- first.
local reserves = false
-- What a client that keeps to its share knows: how many parties the others are at least, the permits
-- that have been left by everybody for long enough, after how many ms there may be more to take, and
-- whether a request may exceed the whole share (0 or 1). nil: requests take whatever is free.
local terms
local earlier, dates = 'n', {} -- the words of ARGV[8] behind those three
if (ARGV[8] or '') ~= '' then
  for word in string.gmatch(ARGV[8], '%S+') do
    dates[#dates + 1] = word
  end
  audit_limit = math.max(audit_limit, tonumber(table.remove(dates, 1)))
  hold = table.remove(dates, 1)
  reserves, hold = hold == 'r', tonumber(hold) or 0
  local word = table.remove(dates, 1)
  if word ~= '-' then
    terms = {}
    for number in string.gmatch(word, '-?%d+') do
      terms[#terms + 1] = tonumber(number)
    end
  end
  earlier = table.remove(dates, 1)
end
read_id(ARGV[2])

-- Of these members with their scores: the entries of this call's id, and their scores. One with more
-- permits than the call asks for is not the call's.
local function own_among(found)
  local own, scores, known, total = {}, {}, {}, tonumber(total_text)
  for i = 1, #found, 2 do
    local member = found[i]
    local p = part_number(member) and permits_of(member) or 0
    if p > 0 and p <= total and not known[member] then
      known[member] = true
      own[#own + 1], scores[#own + 1] = member, found[i + 1]
    end
  end
  return own, scores
end

-- The entries of this call's id and their scores: an earlier attempt wrote them; or this very attempt,
-- which comes twice, or a later one that came first. Then the third result is their date. `date` is that
-- of this attempt.
local function find_own(date)
  local found = {}
  if earlier == 'd' then
    local own, scores =
      own_among(call('ZRANGEBYSCORE', log_key, int(date), '+inf', 'WITHSCORES'))
    if own[1] then
      return own, scores, scores[1] - 0
    end
    for i = 1, #dates do
      local there = call('ZRANGEBYSCORE', log_key, dates[i], dates[i], 'WITHSCORES')
      for k = 1, #there do
        found[#found + 1] = there[k]
      end
    end
  else
    local after = dates[1]
    if not after and ARGV[1] == '' and (ARGV[6] or '') ~= '' then
      after = string.sub(ARGV[6], 2)
    end
    local from = after and '(' .. after or int(date)
    local total = tonumber(total_text)
    -- As in part/acquire_fast.lua. A reservation has another mark in its id.
    if #ARGV[2] == 21 and not reserves and
        (total == 1 or total * 10 < call('ZCOUNT', log_key, from, '+inf')) then
      for p = 1, total do
        local member = string.sub(ARGV[2], 1, 17) .. struct.pack('<I4', p)
        local score = call('ZSCORE', log_key, member)
        if score and (after and score - after > 0 or not after and score - date >= 0) then
          found[#found + 1], found[#found + 2] = member, score
        end
      end
    else
      found = call('ZRANGEBYSCORE', log_key, from, '+inf', 'WITHSCORES')
    end
  end
  local own, scores = own_among(found)
  local is_first = earlier == 'n' or earlier == 'f'
  local later, first = {}, nil
  for i = 1, #own do
    -- An attempt that is late must not give up what a later one was granted.
    if is_first or reserves and scores[i] - date >= 0 and scores[i] - (dates[2] or 0) ~= 0 then
      later[#later + 1], first = own[i], math.min(first or math.huge, scores[i])
    end
  end
  return first and later or own, scores, first
end
