-- Decides requests for permits, one after the other, as one step. Twin: src/store/memory/acquire.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log; or hash, value and
--        log of the mode that argument 3 begins with: each key costs the server 0.4 microseconds
-- ARGV   1 the time in epoch ms; '' for the server's clock
--        2 an entry of the call's id with all requested permits (21 bytes); its first 17 bytes
--          if they are more than an entry holds
--        3 what the client last saw in the hash: type, rate, interval and keep-alive, with one
--          space between; '' for nothing
--        4 1 if entries are expected to have expired, so that two are read at once; ''. Only what
--          the call costs depends on it
--        5 all requested permits; '' for 1
--        6 the score from which an entry of this id, written by this call's own retry, would
--          be in the log, as ZRANGEBYSCORE takes it; '' for the date of the grant. Needed
--          if 5 is not 1
--        7 the requests, groups of alike ones: permits (4 bytes), the longest wait in ms (7), count
--          (4), each little-endian; '' for a single request that does not wait
--        8 '' or words: the longest log that is to be summed; hold in ms, or r if the only request
--          may be served by a reservation; '-' or what the share of its client depends on (see
--          part/attempt.lua), seven numbers with commas between; then one of
--          n   a first attempt
--          f s a first attempt after server time s
--          d t … attempted before, dated t …
--          s t attempted before, after server time t
--          r t u its request has a reservation dated u, made after time t
--        9 '' or the rate to create the limiter with: rate, interval, type, keep-alive
--        (arguments that are '' at the end may be left out)
-- reply  {type, left, rate, interval, keep-alive, now, outcomes …}, an outcome being count, kind, ms
--        or shorter, if the rate is what the client last saw:
--        left, {left, now}: all are granted
--        {left, now, count, other count, ms}: granted, then the others refused with this wait
--        behind the outcomes, if value and log together were not the rate and have been repaired: what
--        they lacked of it, negative if they were beyond it
--        behind these, of a client that keeps to its share, unless nobody else is a party by
--        the mode: {other parties, 1 if Redisson holds permits, what was left of its share, entries,
--        thousandths of a permit that it held less than its exact share, its share}
--        kinds: 0 granted, 1 refused, 2 refused with a wait of at least ms, 3 waiting, 4 waiting
--        at least ms, 5 more than the rate, 6 undecided, 7 reserved for in ms
--        or {-7, now}: the mode in force is not that of the keys; {-1, …}, {-2, …}, {-3, …}: see
--        part/config.lua and part/live_log.lua

local creation
if not fields[3] and (ARGV[9] or '') ~= '' then
  creation = {}
  for word in string.gmatch(ARGV[9], '%S+') do
    creation[#creation + 1] = word
    fields[#creation] = fields[#creation] or word
  end
end
local problem = read_config()
if problem then
  return problem
end
if not KEYS[4] and fields[3] ~= string.sub(seen_text, 1, 1) then
  return {-7, now_text - 0}
end
now = tonumber(now_text)
if earlier == 's' or earlier == 'r' then
  -- A server whose clock went back must not date it before what was seen.
  now = math.max(now, dates[1] + 1)
end
local date = now + hold
if raw == nil then
  raw = call('GET', value_key)
end
value = integer(raw)
local value_before = value
read_requests()

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

local own, own_scores, overtaken = find_own(date)
if overtaken then
  if reserves and (overtaken > date or earlier ~= 'n' and earlier ~= 'f') then
    answer(requests, 7, math.max(1, math.min(overtaken - date, MAX_EXACT)))
    return unchanged()
  end
  -- This very attempt came twice, or its own retry came first: the answer is the one that was
  -- given, out of what is there.
  local permits = 0
  for i = 1, #own do
    permits = permits + permits_of(own[i])
  end
  answer_as_before(permits)
  reply[6] = math.min(overtaken, MAX_EXACT) - hold
  return unchanged()
end
if demand == 0 then
  answer(requests, 5, 0)
  return unchanged()
end

-- What was granted before is granted now: it is moved before all else is read, and back if a foreign
-- entry forbids to write. What was reserved is free again, and the request decided anew: its permits may
-- not be there at its date, if the rate was lowered or an attempt of another call has moved an entry.
-- (Not copied by unpack, which fails for some thousand entries.)
local is_repeat, reserved, moved = own[1] ~= nil and not reserves, 0, {}
for i = 1, #own do
  moved[i] = own[i]
  if is_repeat then
    call('ZADD', log_key, int(date), moved[i])
  else
    call('ZREM', log_key, moved[i])
    reserved = reserved + permits_of(moved[i])
  end
end
if not is_repeat then
  own = {}
end
value = value and value + reserved
local known = value
local function fail()
  for i = 1, #moved do
    call('ZADD', log_key, own_scores[i], moved[i])
  end
  return foreign
end

-- The drop and the two phases.
read_log()
local enough = math.huge
if value and audit_limit == 0 and not terms and not is_another(seen_text) then
  enough = demand - value
end
local all_dropped = read_expired(enough, DROP_LIMIT)
if not look_at_oldest() then
  return fail()
end
local is_summed = settle(seen_text)
if is_summed == nil then
  return fail()
end
local changed = credit > 0 or value ~= known
local left = count - dropped
local deficit = find_deficit(is_summed, demand > value, audit_limit)
if not deficit then
  return fail()
end
local settled = value
heal(deficit)
changed = changed or value ~= settled
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

-- The entries to wait for, if they are not simply those in the log.
local function make_view()
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
-- What was granted before was within the share then. With expired entries still in the log, it is
-- not known who holds what.
if terms and not is_repeat and all_dropped then
  read_holders(budget)
end
local wait
if reserves and requests == 1 then
  -- What was reserved was within the share then.
  local p, was_within = group_permits[1], reserved > 0
  if p > value and all_dropped and (was_within or allowed and may_reserve(p)) then
    wait = find_reservation(p, group_max_wait[1])
    if foreign then
      return fail()
    end
  end
  if was_within then
    allowed = nil
  end
end
if wait then
  answer(1, 7, wait)
  budget, granted, date = value - group_permits[1], group_permits[1], now + wait
else
  budget = decide(budget, others, all_dropped, (debts[1] or is_repeat) and make_view)
  if not budget then
    return fail()
  end
end

-- Writes, from here on.
if creation then
  local names = {'rate', 'interval', 'type', 'keepAliveTime'}
  for i = 1, 4 do
    call('HSETNX', KEYS[1], names[i], creation[i])
  end
  if creation[4] ~= '0' then
    call('PEXPIRE', KEYS[1], creation[4])
  end
end
drop_expired()
write_trimmed()
for i = 1, #debts do
  call('ZADD', log_key, int(now), debts[i])
end
if is_repeat then
  -- What is not granted again goes back.
  give_back(own, budget, int(date))
  value = value + budget
else
  local entries = entries_of(granted, wait and 16384 or 0)
  for i = 1, #entries do
    call('ZADD', log_key, int(date), entries[i])
  end
  value = budget
end
write_value(value_before, changed)
refresh_lifetime()
reply[2] = value
if deficit ~= 0 then
  reply_size = reply_size + 1
  reply[reply_size] = deficit
end
reply[reply_size + 1] = holders
return reply
