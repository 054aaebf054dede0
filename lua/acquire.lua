-- Decides requests for permits in one step, one after the other: reads the limiter, decides, and writes what it
-- has decided. Twin: src/store/memory/acquire.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log; or hash, value and
--        log of the mode that `seen` begins with: each key costs the server 0.4 microseconds
-- ARGV   by the names of part/arguments.lua; '' means nothing, and empty ones at the end are left out
--        now_text         the time in epoch ms; '' for the server's clock
--        entry            an entry of the call's id with all requested permits (21 bytes); its first 17
--                         bytes if the permits do not fit into one entry
--        seen             the type, rate, interval and keep-alive that the client last saw in the hash, with
--                         one space between them
--        expects_expired  1 if entries are expected to have expired, so that two are read at once. Only
--                         the cost of the call depends on it
--        total            all requested permits; 1 if left out
--        groups           groups of equal requests: permits (4 bytes), the longest wait in ms (7), count (4),
--                         each little-endian; '' for a single request that does not wait
--        after            entries of this id with a later date are the call's own. For a first attempt by the
--                         server's clock, the last time seen before it; '' for the date of the grant
--        hold             how far ahead of now the grant is dated, in ms
--        creation         the rate to create the limiter with: rate, interval, type, keep-alive
--        reserves         1 if the only request may be served by a reservation
--        audit_limit      the longest log to sum
--        share_terms      the terms of its client's share, with commas between them: the least number of other
--                         parties, the permits that everybody has left for long enough, the time in ms until
--                         there may be more to take, and whether a request may exceed the whole share (0 or 1)
--        is_again         1 if the call has been attempted before: at the dates in `dates`, or after `after`
--        dates            these dates, with spaces between them
--        reserved_date    the date of the request's reservation
--        headroom         the part of the rate to leave after each grant, from 0 to 1
-- reply  {type, left, rate, interval, keep-alive, now, outcomes …}, an outcome being count, kind, ms;
--        shorter if the rate is what the client last saw and all requests are granted: left, or {left, now}
--        after the outcomes, if value and log together were not the rate and have been repaired: the permits
--        that were missing, negative for an excess
--        then, for a client limited to its share, unless the mode leaves no other party:
--        {other parties, 1 if Redisson holds permits, its share, entries}
--        kinds: 0 granted, 1 refused, 2 refused with a wait of at least ms, 3 waiting, 4 waiting
--        at least ms, 5 more than the rate leaves, 6 undecided, 7 reserved for in ms
--        or {-7, now}: the mode in force is not that of the keys; {-1, …}, {-2, …}, {-3, …}: see
--        part/config.lua and part/live_log.lua

-- Read.
total = (total or '') ~= '' and total or '1'
groups, after, dates, hold = groups or '', after or '', dates or '', tonumber(hold) or 0
local created
if not fields[3] and (creation or '') ~= '' then
  created = {string.match(creation, '(%d+) (%d+) (%d) (%d+)')}
  for i = 1, 4 do
    fields[i] = fields[i] or created[i]
  end
end
local reply = read_config(s)
if reply then
  return reply
end
if not KEYS[4] and fields[3] ~= string.sub(seen, 1, 1) then
  return {-7, now_text - 0}
end
s.now = tonumber(now_text)
if is_again == '1' and after ~= '' then
  -- If the server's clock went back, the date must still be later than the one seen.
  s.now = math.max(s.now, after + 1)
end
s.date = s.now + hold
s.headroom = headroom and math.ceil(s.rate * headroom) or 0
local before = integer(call('GET', s.value_key))
local demand, requests, list = 0, 0, {total - 0, 0, 1}
for i = 1, groups == '' and 1 or #groups / 5, 3 do
  if groups ~= '' then
    list[i], list[i + 1], list[i + 2] = struct.unpack('<I4I7I4', groups, i * 5 - 4)
  end
  requests = requests + list[i + 2]
  if list[i] <= s.rate - s.headroom then
    demand = demand + list[i] * list[i + 2]
  end
end
reply = {s.per_client, 0, s.rate, s.interval, s.keep_alive, s.now}
read_id(s, entry)
local overtaken = find_own(s)
for i = 1, #s.own do
  s.own_permits = s.own_permits + permits_of(s.own[i])
end
if overtaken or demand == 0 then
  -- Nothing is written.
  if demand == 0 and not overtaken then
    answer(reply, requests, 5, 0)
  elseif reserves == '1' and (overtaken > s.date or is_again == '1') then
    answer(reply, requests, 7, math.max(1, math.min(overtaken - s.date, MAX_EXACT)))
  else
    -- This attempt is a duplicate, or its own retry overtook it: give the same answer, reconstructed from the
    -- log.
    for i = 1, #list, 3 do
      local p, n = list[i], list[i + 2]
      local fits = p <= s.rate - s.headroom
      local fit = fits and math.min(n, math.floor(s.own_permits / p)) or 0
      s.own_permits = s.own_permits - fit * p
      answer(reply, fit, 0, 0)
      answer(reply, n - fit, fits and 2 or 5, fits and 1 or 0)
    end
    reply[6] = math.min(overtaken, MAX_EXACT) - hold
  end
  reply[2] = before or s.rate
  for _, member in ipairs(before and {} or call('ZRANGE', s.log_key, '0', '-1')) do
    reply[2] = reply[2] - (permits_of(member) or 0)
  end
  return reply
end
-- Permits granted before are granted again and dated now, and no others. Permits reserved before are free again
-- and the request is decided anew: they may not be there at their date, if the rate was lowered or an attempt of
-- another call has moved an entry.
local is_repeat = s.own[1] and reserves ~= '1'
local reserved = is_repeat and 0 or s.own_permits
s.own_permits, s.known = s.own_permits - reserved, before and before + reserved
read_seen(s, seen)
audit_limit = s.is_another == nil and math.huge or tonumber(audit_limit) or 0
if (share_terms or '') ~= '' then
  terms = {string.match(share_terms, '(%d+),(%d+),(%d+),(%d)')}
end
read_log(s, s.known and audit_limit == 0 and not terms and s.is_another == false and
  demand + s.headroom - s.known or math.huge, DROP_LIMIT)
look_at(s, 1)

-- Decide.
settle(s)
heal(s, demand > s.value - s.headroom, audit_limit)
local budget, others = s.value - s.headroom, 0
if is_repeat then
  budget, others = s.own_permits, budget
elseif terms and s.is_settled then
  -- Not for a repeated call: its permits were within the share then. With expired entries still in the log,
  -- the holders are unknown.
  read_holders(s, budget)
end
local p, wait = list[1], nil
if reserves == '1' and requests == 1 then
  -- Permits reserved before were within the share then.
  if p > budget and s.is_settled and (reserved > 0 or allowed and may_reserve(p)) then
    wait = find_reservation(s, p + s.headroom, list[2])
  end
  allowed = reserved == 0 and allowed or nil
end
if wait then
  answer(reply, 1, 7, wait)
  budget = budget - p
else
  budget = decide(s, reply, list, budget, others)
end
if s.foreign then
  return s.foreign
end

-- Write.
if created then
  for i, name in ipairs({'rate', 'interval', 'type', 'keepAliveTime'}) do
    call('HSETNX', KEYS[1], name, created[i])
  end
  if created[4] ~= '0' then
    call('PEXPIRE', KEYS[1], created[4])
  end
end
-- Return whatever is not granted again.
give_back(s, s.own, is_repeat and budget or reserved, int(s.date))
write_log(s)
write_entries(s, s.debt, 32768, int(s.now))
if wait then
  write_entries(s, p, 16384, int(s.now + wait))
elseif not is_repeat then
  write_entries(s, s.granted, 0, int(s.date))
end
reply[2] = others + budget + s.headroom
write_value(s, before, reply[2])
refresh_lifetime(s)
if s.deficit ~= 0 then
  reply[#reply + 1] = s.deficit
end
reply[#reply + 1] = holders
return reply
