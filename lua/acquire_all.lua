-- Decides requests that take from several limiters, one request after the other: each gets what it asks for
-- from all of them, or nothing from any. Reads all limiters, decides, and writes them all. Twin:
-- src/store/memory/acquire_all.rs.
--
-- KEYS   the five of each limiter: hash, value, log, the client's value, the client's log
-- ARGV   1 the time in epoch ms; '' for the server's clock
--        2 after, 3 is_again, 4 dates: as those of acquire.lua
--        and for each limiter
--        an entry of the call's id with all requested permits (21 bytes); its first 17 bytes if they are more
--        than an entry holds
--        all requested permits
--        the type, rate, interval and keep-alive that the client last saw in the hash, with one space between
--        the rate to create the limiter with: rate, interval, type, keep-alive
--        the longest log that is to be summed
--        the requests, groups of equal ones: permits (4 bytes), the longest wait in ms (7), count (4), each
--        little-endian; waits and counts are those of every limiter
-- reply  {0, 0, 0, 0, 0, now, outcomes …, limits}, an outcome being count, kind, ms: the kinds of acquire.lua,
--        plus 10 for each limiter before the one that is to be waited for longest; the limits being, for each
--        limiter, {type, left, rate, interval, keep-alive, what value and log lacked of the rate and was repaired};
--        shorter if the rates are what the client last saw and all requests are granted: {now, left …}
--        or {-1, …}, {-2, …}, {-3, …}: see part/config.lua and part/live_log.lua, with the hash's key as the
--        fourth element

-- Read.
local blank, limits, overtaken, is_settled = s, {}, false, true
for i = 1, #names / 5 do
  KEYS = {unpack(names, i * 5 - 4, i * 5)}
  s = {keys = KEYS}
  for name, empty in pairs(blank) do
    s[name] = type(empty) == 'table' and {} or empty
  end
  limits[i] = s
  entry, total, seen, creation, audit_limit, groups = unpack(ARGV, i * 6 - 1, i * 6 + 4)
  fields = all_fields[i] or call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime')
  if not fields[3] and creation ~= '' then
    s.created = {string.match(creation, '(%d+) (%d+) (%d) (%d+)')}
    for k = 1, 4 do
      fields[k] = fields[k] or s.created[k]
    end
  end
  local problem = read_config(s)
  if problem then
    return {problem[1], problem[2], problem[3] or '', KEYS[1]}
  end
  s.now = tonumber(now_text)
  if is_again == '1' and after ~= '' then
    -- A server whose clock went back must not date it before what was seen.
    s.now = math.max(s.now, after + 1)
  end
  s.date, s.before, s.requests = s.now, integer(call('GET', s.value_key)), {}
  for k = 1, #groups / 5, 3 do
    s.requests[k], s.requests[k + 1], s.requests[k + 2] = struct.unpack('<I4I7I4', groups, k * 5 - 4)
  end
  read_id(s, entry)
  overtaken = find_own(s) or overtaken
  s.own_total = 0
  for k = 1, #s.own do
    s.own_total = s.own_total + permits_of(s.own[k])
  end
  -- What earlier attempts were granted is free again, and all requests are decided anew.
  s.known = s.before and s.before + s.own_total
  read_seen(s, seen)
  read_log(s, math.huge, DROP_LIMIT)
  look_at(s, 1)
  settle(s)
  heal(s, total - 0 > s.value, s.is_another == nil and math.huge or tonumber(audit_limit) or 0)
  is_settled = is_settled and s.is_settled
  s.budget, s.queued = s.value, 0
  if s.foreign then
    return {s.foreign[1], s.foreign[2], '', KEYS[1]}
  end
end

-- Decide.
local reply = {0, 0, 0, 0, 0, s.now}
if overtaken then
  -- This attempt is a duplicate, or a retry of it came first: the answer is the one that was given, out of
  -- what is there, and nothing is written.
  reply[6] = math.min(overtaken, MAX_EXACT)
  for i = 1, #limits do
    limits[i].budget = limits[i].own_total
  end
end
local waiting, undecided, last, by, is_within = 0, false, 1, 0, false
for k = 1, #limits[1].requests, 3 do
  local max_wait_ms, n = limits[1].requests[k + 1], limits[1].requests[k + 2]
  local fit, exceeds = waiting > 0 and 0 or n, false
  for _, s in ipairs(limits) do
    exceeds = exceeds or s.requests[k] > s.rate
    fit = math.max(0, math.min(fit, math.floor(s.budget / s.requests[k])))
  end
  is_within = is_within or not exceeds
  if exceeds and not undecided then
    answer(reply, n, 5, 0)
    n = 0
  elseif not undecided then
    for _, s in ipairs(limits) do
      s.budget, s.granted = s.budget - fit * s.requests[k], s.granted + fit * s.requests[k]
    end
    answer(reply, fit, 0, 0)
    n = n - fit
    undecided = n > 0 and not is_settled
  end
  if undecided then
    answer(reply, n, 6, 0)
    n = 0
  end
  while n > 0 do
    local ms, more, several = last, true, n
    if overtaken then
      ms, max_wait_ms = 1, 0
    elseif waiting < EXACT_WAITS then
      -- How long all of them together take, and whether one of them may take longer.
      ms, more, several = 0, false, 1
      for i, s in ipairs(limits) do
        local lacking = s.queued + s.requests[k] - s.budget
        if lacking > 0 then
          local wait, is_bound = wait_for(s, lacking)
          if s.foreign then
            return {s.foreign[1], s.foreign[2], '', s.keys[1]}
          end
          more = more or is_bound
          if wait > ms then
            ms, by = wait, i - 1
          end
        end
      end
    end
    if max_wait_ms < ms then
      -- It blocks nobody, so that the wait of the next one like it is the same.
      answer(reply, n, by * 10 + (more and 2 or 1), ms)
      n = 0
    else
      answer(reply, several, by * 10 + (more and 4 or 3), ms)
      for _, s in ipairs(limits) do
        s.queued = s.queued + several * s.requests[k]
      end
      last, waiting, n = ms, waiting + 1, n - several
    end
  end
end
local states = {}
for i, s in ipairs(limits) do
  local left = (overtaken or not is_within) and s.before or s.budget
  states[i] = {s.per_client, left, s.rate, s.interval, s.keep_alive, s.deficit}
end
reply[#reply + 1] = states
if overtaken or not is_within then
  return reply
end

-- Write.
for _, s in ipairs(limits) do
  KEYS = s.keys
  if s.created then
    for i, name in ipairs({'rate', 'interval', 'type', 'keepAliveTime'}) do
      call('HSETNX', KEYS[1], name, s.created[i])
    end
    if s.created[4] ~= '0' then
      call('PEXPIRE', KEYS[1], s.created[4])
    end
  end
  give_back(s, s.own, s.own_total, '0')
  write_log(s)
  write_entries(s, s.debt, 32768, int(s.now))
  write_entries(s, s.granted, 0, int(s.date))
  write_value(s, s.before, s.budget)
  refresh_lifetime(s)
end
return reply
