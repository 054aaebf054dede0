-- Decides requests for permits, one after the other, as one step.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- ARGV   1 the time in epoch ms; '' for the server's clock
--        2 an entry of the call's id with all requested permits (21 bytes); its first 17 bytes
--          where they are more than an entry holds
--        3 what the client last saw in the hash: type, rate, interval and keep-alive, with one
--          space between; '' for nothing
--        4 all requested permits
--        5 the score from which an entry of this id, written by this call's own retry, would
--          stand in the log, as ZRANGEBYSCORE takes it; '' for the date of the grant. Needed
--          where 4 is not 1
--        6 the requests, runs of alike ones: permits (4 bytes), patience in ms (7), count (4),
--          each little-endian; '' for a single request that does not wait
--        7 '' or words: audit (0 or 1); hold in ms; then one of
--          n   a first attempt
--          f s a first attempt after server time s
--          d t … attempted before, dated t …
--          s t attempted before, after server time t
--        8 '' or the rate to create the limiter with: rate, interval, type, keep-alive
--        (arguments that are '' at the end may be left out)
-- reply  {type, left, rate, interval, keep-alive, now, outcomes …}, an outcome being count, kind, ms
--        or shorter, if the rate is what the client last saw:
--        left, {left, now}: all are granted
--        {left, now, count, other count, ms}: granted, then the others refused with this wait
--        kinds: 0 granted, 1 refused, 2 refused with a wait of at least ms, 3 waiting, 4 waiting
--        at least ms, 5 more than the rate, 6 undecided
--        or {-1, …}, {-2, …}, {-3, …}: see part/config.lua and part/live_log.lua

local audit, hold, earlier, dates = false, 0, 'n', {}
if (ARGV[7] or '') ~= '' then
  for word in string.gmatch(ARGV[7], '%S+') do
    dates[#dates + 1] = word
  end
  audit, hold = table.remove(dates, 1) == '1', tonumber(table.remove(dates, 1))
  earlier = table.remove(dates, 1)
end
-- A client's first call is an audit: what it finds may have been left there under a rate that it
-- has forgotten.
audit = audit or seen_text == ''

local creation
if not fields[3] and (ARGV[8] or '') ~= '' then
  creation = {}
  for word in string.gmatch(ARGV[8], '%S+') do
    creation[#creation + 1] = word
    fields[#creation] = fields[#creation] or word
  end
end
local problem = read_config()
if problem then
  return problem
end
local other_rate = is_another(seen_text)
now = tonumber(now_text)
if earlier == 's' then
  now = math.max(now, dates[1] + 1)
end
local date = now + hold

if raw == nil then
  raw = call('GET', value_key)
end
value = integer(raw)
local value_before = value

-- The requests, run by run, and how many permits those within the rate ask for together.
local run_permits, run_patience, run_count = {}, {}, {}
local runs, demand, requests = 0, 0, 0
do
  local packed, at, p, patience, n = ARGV[6] or '', 1, total_text - 0, 0, 1
  repeat
    if packed ~= '' then
      p, patience, n, at = struct.unpack('<I4I7I4', packed, at)
    end
    runs = runs + 1
    run_permits[runs], run_patience[runs], run_count[runs] = p, patience, n
    requests = requests + n
    if p <= rate then
      demand = demand + p * n
    end
  until packed == '' or at > #packed
end

local reply = {per_client, 0, rate, interval, keep_alive, now}
local size = 6
local function answer(n, kind, ms)
  if n > 0 and size > 6 and reply[size - 1] == kind and reply[size] == ms then
    reply[size - 2] = reply[size - 2] + n
  elseif n > 0 then
    -- In this order: what is not put at an array's end is slow to read again.
    reply[size + 1] = n
    reply[size + 2] = kind
    reply[size + 3] = ms
    size = size + 3
  end
end
-- The answer of a call that writes nothing.
local function unchanged()
  if not value then
    value = rate
    local all = call('ZRANGE', log_key, '0', '-1')
    for i = 1, #all do
      value = value - (permits_of(all[i]) or 0)
    end
  end
  reply[2] = value
  return reply
end

-- The entries of this call's id: an earlier attempt wrote them, or a later one that came first.
local id, tail = string.sub(ARGV[2], 2, 15), struct.unpack('<I2', ARGV[2], 16)
local own, own_scores = {}, {}
do
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
  local known = {}
  for i = 1, #found, 2 do
    local member = found[i]
    if #member == 21 and string.byte(member, 1) == 16 and string.sub(member, 2, 15) == id and
        bit.bxor(struct.unpack('<I2', member, 16), tail) < 32768 and not known[member] then
      known[member] = true
      own[#own + 1], own_scores[#own + 1] = member, found[i + 1]
    end
  end
end
local is_repeat = own[1] and (earlier == 'd' or earlier == 's')
if own[1] and not is_repeat then
  -- This very attempt came twice, or its own retry came first: the answer is the one that was
  -- given, out of what is there.
  local rest = 0
  for i = 1, #own do
    rest = rest + permits_of(own[i])
  end
  for i = 1, runs do
    local p, n = run_permits[i], run_count[i]
    local fit = p <= rate and math.min(n, math.floor(rest / p)) or 0
    rest = rest - fit * p
    answer(fit, 0, 0)
    answer(n - fit, p <= rate and 2 or 5, p <= rate and 1 or 0)
  end
  reply[6] = own_scores[1] - hold
  return unchanged()
end

local function create()
  if creation then
    local names = {'rate', 'interval', 'type', 'keepAliveTime'}
    for i = 1, 4 do
      call('HSETNX', KEYS[1], names[i], creation[i])
    end
    if creation[4] ~= '0' then
      call('PEXPIRE', KEYS[1], creation[4])
    end
  end
end

if demand == 0 then
  answer(requests, 5, 0)
  return unchanged()
end

-- What was granted before is granted now: it is moved before all else is read, and back where a
-- foreign entry forbids to write.
local moved = {}
for i = 1, is_repeat and #own or 0 do
  moved[i] = own[i]
end
local function fail()
  for i = 1, #moved do
    call('ZADD', log_key, own_scores[i], moved[i])
  end
  return foreign
end
for i = 1, #moved do
  call('ZADD', log_key, int(date), moved[i])
end

read_log()
local enough = math.huge
if value and not other_rate and not audit then
  enough = demand - value
end
local all_dropped = read_expired(enough, DROP_LIMIT)
if not look_at_oldest() then
  return fail()
end
local exact = settle(seen_text)
if exact == nil then
  return fail()
end
local changed = credit > 0 or value ~= value_before
local left = count - dropped
local deficit = find_deficit(exact, demand > value, audit)
if not deficit then
  return fail()
end
local settled = value
heal(deficit)
changed = changed or value ~= settled

-- Entries of this call's id, or of debts derived from it, that hold `total` permits.
local function entries_of(total, mask)
  local list, k = {}, 0
  while total > 0 do
    local part = math.min(total, MAX_ENTRY_PERMITS)
    list[k + 1] = struct.pack('<Bc0I2I4', 16, id, bit.bxor(tail, mask + k), part)
    total, k = total - part, k + 1
  end
  return list
end
local debts = entries_of(debt, 32768)

-- What an earlier attempt left is what there is to grant again, and no more.
local budget, others = value, 0
local is_own = {}
if is_repeat then
  local gone = {}
  for i = 1, trimmed do
    gone[members[i]] = true
  end
  own, budget, others = {}, 0, value
  for i = 1, #moved do
    local member = moved[i]
    if not gone[member] then
      is_own[member] = true
      if lowered and member == members[trimmed + 1] then
        member = with_permits(member, lowered)
      end
      own[#own + 1] = member
      budget = budget + permits_of(member)
    end
  end
end
granted_score = date

-- The entries to wait for, where they are not simply those in the log.
local function look()
  local is_debt, known_debts = {}, 0
  for i = 1, #debts do
    is_debt[debts[i]] = true
  end
  local reach = trimmed + SHORT_LOG + #own + #debts
  read_entries(reach)
  local list = {}
  for i = trimmed + 1, math.min(#members, reach) do
    if is_debt[members[i]] then
      -- The same debt of an earlier attempt: it is moved, not added.
      known_debts = known_debts + 1
    elseif not is_own[members[i]] then
      list[#list + 1] = {tonumber(call('ZSCORE', log_key, members[i])), permits[i], members[i]}
    end
  end
  for i = 1, #debts do
    list[#list + 1] = {now, permits_of(debts[i]), debts[i]}
  end
  table.sort(list, function(a, b)
    return a[1] < b[1] or a[1] == b[1] and a[3] < b[3]
  end)
  view = {permits = {}, all = left - trimmed - #own + #debts - known_debts}
  for i = 1, #list do
    scores[i], view.permits[i] = list[i][1], list[i][2]
  end
end

local queued, waiting, undecided = 0, 0, false -- permits and requests that wait
local last -- the wait of the last of those
local known_ms, known_more = {}, {} -- waits that were looked for, by the permits that it takes
for i = 1, runs do
  local p, patience, n = run_permits[i], run_patience[i], run_count[i]
  if not undecided and p > rate then
    answer(n, 5, 0)
    n = 0
  elseif not undecided and queued == 0 then
    local fit = math.max(0, math.min(n, math.floor(budget / p)))
    answer(fit, 0, 0)
    if fit > 0 then
      known_ms = {}
    end
    budget, granted, n = budget - fit * p, granted + fit * p, n - fit
    undecided = n > 0 and not all_dropped
  end
  if undecided then
    answer(n, 6, 0)
    n = 0
  end
  while n > 0 do
    local bounded = waiting >= EXACT_WAITS
    local ms, more = last, true
    if not bounded then
      local lacking = queued + p - budget - others
      if not known_ms[lacking] then
        if not view and (debts[1] or is_repeat) then
          look()
        end
        known_ms[lacking], known_more[lacking] = wait_for(lacking)
        if not known_ms[lacking] then
          return fail()
        end
      end
      ms, more = known_ms[lacking], known_more[lacking]
    end
    if patience < ms then
      answer(n, more and 2 or 1, ms)
      n = 0
    else
      local several = bounded and n or 1
      answer(several, more and 4 or 3, ms)
      last = ms
      queued, waiting, n = queued + several * p, waiting + 1, n - several
    end
  end
end

-- Writes, from here on.
create()
drop_expired()
write_trimmed()
for i = 1, #debts do
  call('ZADD', log_key, int(now), debts[i])
end
if is_repeat then
  -- What is not granted again goes back, out of the last part first.
  value = value + budget
  table.sort(own, function(a, b)
    return bit.bxor(struct.unpack('<I2', a, 16), tail) > bit.bxor(struct.unpack('<I2', b, 16), tail)
  end)
  for i = 1, #own do
    local p = permits_of(own[i])
    local taken = math.min(p, budget)
    if taken > 0 then
      budget = budget - taken
      call('ZREM', log_key, own[i])
      if taken < p then
        call('ZADD', log_key, int(date), with_permits(own[i], p - taken))
      end
    end
  end
else
  local entries = entries_of(granted, 0)
  for i = 1, #entries do
    call('ZADD', log_key, int(date), entries[i])
  end
  value = budget
end
if changed then
  call('SET', value_key, int(value))
elseif value ~= value_before then
  call('INCRBY', value_key, int(value - value_before))
end
refresh_lifetime()
reply[2] = value
return reply
