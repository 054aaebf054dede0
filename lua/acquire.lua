-- Decides requests for permits in one step, one after the other: reads the limiter, decides, and writes what it
-- has decided. Twin: src/store/memory/acquire.rs.
--
-- Requests may take from several limiters: each gets what it asks for from all of them, or nothing from any. A limiter
-- alone is decided as a group of one; only it has shares and reservations.
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
-- of several limiters
-- KEYS   the five of each limiter
-- ARGV   see part/arguments_all.lua
-- reply  {…, now, outcomes …, limits}: the kinds plus 10 for each limiter before the one that is to be waited for
--        longest; the limits being, for each limiter, {type, left, rate, interval, keep-alive, what value and log
--        lacked of the rate and was repaired}
--        shorter if the rates are what the client last saw and all requests are granted: {now, left …}
--        the errors have the hash's key as the fourth element

-- Read.
total = (total or '') ~= '' and total or '1'
groups, after, dates = groups or '', after or '', dates or ''
local limits, overtaken, is_settled = {}, nil, true
for i = 1, names and #names / 5 or 1 do
  if names then
    turn_to(i)
  end
  limits[i] = s
  if not fields[3] and (creation or '') ~= '' then
    s.created = {string.match(creation, '(%d+) (%d+) (%d) (%d+)')}
    for k = 1, 4 do
      fields[k] = fields[k] or s.created[k]
    end
  end
  local problem = read_config(s)
  if problem then
    return names and {problem[1], problem[2], problem[3] or '', KEYS[1]} or problem
  elseif not KEYS[4] and fields[3] ~= string.sub(seen, 1, 1) then
    return {-7, now_text - 0}
  end
  -- If the server's clock went back, the date must still be later than the one seen.
  s.now = math.max(tonumber(now_text), is_again == '1' and after ~= '' and after + 1 or -math.huge)
  s.date = s.now + (tonumber(hold) or 0)
  s.headroom = headroom and math.ceil(s.rate * headroom) or 0
  s.before = integer(call('GET', s.value_key))
  local demand, list = 0, {total - 0, 0, 1}
  for k = 1, math.max(1, #groups / 5), 3 do
    if groups ~= '' then
      list[k], list[k + 1], list[k + 2] = struct.unpack('<I4I7I4', groups, k * 5 - 4)
    end
    if list[k] <= s.rate - s.headroom then
      demand = demand + list[k] * list[k + 2]
    end
  end
  s.requests = list
  read_id(s, entry)
  overtaken = find_own(s) or overtaken
  for k = 1, #s.own do
    s.own_permits = s.own_permits + permits_of(s.own[k])
  end
  -- What earlier attempts were granted is free again, and all requests are decided anew.
  s.known = s.before and s.before + s.own_permits
  read_seen(s, seen)
  read_log(s, DROP_LIMIT)
  look_at(s, 1)
  settle(s)
  heal(s, demand > s.value - s.headroom, s.is_another == nil and math.huge or tonumber(audit_limit) or 0)
  s.budget, is_settled = s.value - s.headroom, is_settled and s.is_settled
  if s.foreign then
    return names and {s.foreign[1], s.foreign[2], '', KEYS[1]} or s.foreign
  end
end

-- Decide.
local reply = {s.per_client, 0, s.rate, s.interval, s.keep_alive, s.now}
local is_within, wait, failed, p = true, nil, nil, s.requests[1]
local is_reserved = reserves == '1' and s.requests[3] == 1 and not s.requests[4]
if overtaken then
  -- This attempt is a duplicate, or its own retry came first: the answer is the one that was given, out of what is
  -- there, and nothing is written.
  for i = 1, #limits do
    limits[i].budget = limits[i].own_permits
  end
  if is_reserved and (overtaken > s.date or is_again == '1') then
    wait = math.max(1, math.min(overtaken - s.date, MAX_EXACT))
  else
    reply[6] = math.min(overtaken, MAX_EXACT) - (s.date - s.now)
  end
elseif (share_terms or '') ~= '' and is_settled then
  -- With expired entries still in the log, the holders are unknown.
  terms = {string.match(share_terms, '(%d+),(%d+),(%d+),(%d)')}
  read_holders(s, s.budget)
end
if is_reserved and not overtaken then
  -- Permits reserved before were within the share then. They may not be there at their date, if the rate was
  -- lowered or an attempt of another call has moved an entry: so the request is decided anew.
  if p > s.budget and p <= s.rate - s.headroom and is_settled and s.kept == 0 and
      (s.own_permits > 0 or allowed and (exceeds(p) or p <= share_size - held)) then
    wait = find_reservation(s, p + s.headroom, s.requests[2])
  end
  allowed = s.own_permits == 0 and allowed or nil
end
if wait then
  answer(reply, 1, 7, wait)
  s.budget = s.budget - p
else
  is_within, failed = decide(limits, reply, overtaken, overtaken or is_settled)
end
failed = failed or s.foreign and s
if failed then
  return names and {failed.foreign[1], failed.foreign[2], '', failed.hash_key} or failed.foreign
end

-- Write.
local is_written, states = is_within and not overtaken, {}
for i = 1, #limits do
  s = limits[i]
  if is_written then
    -- This attempt may be a late one: what it does not grant again may be in use.
    s.granted, s.budget = math.max(s.granted, s.kept), s.budget - math.max(0, s.kept - s.granted)
    if s.created then
      for k, name in ipairs({'rate', 'interval', 'type', 'keepAliveTime'}) do
        call('HSETNX', s.hash_key, name, s.created[k])
      end
      if s.created[4] ~= '0' then
        call('PEXPIRE', s.hash_key, s.created[4])
      end
    end
    write_log(s)
    -- Numbered by the date: a second debt of this id, of as many permits, must not replace the first.
    write_entries(s, s.debt, 32768 + s.now % 8192, int(s.now))
    write_entries(s, s.granted, 0, int(s.date))
    write_entries(s, wait and p or 0, 16384, int(s.now + (wait or 0)))
    write_value(s, s.before, s.budget + s.headroom)
    refresh_lifetime(s)
  end
  local left = is_written and s.budget + s.headroom or s.before or s.value
  local deficit = is_written and s.deficit or 0
  if names then
    states[i] = {s.per_client, left, s.rate, s.interval, s.keep_alive, deficit}
  else
    reply[2], states = left, holders
    reply[#reply + 1] = deficit ~= 0 and deficit or nil
  end
end
reply[#reply + 1] = states
return reply
