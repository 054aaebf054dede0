-- The end of a policy's script, behind the policy's file: reads, decides, writes. Twin: src/policy/frame.rs.
--
-- The policy's file declares NAMES (the fields of its state) and the functions configure, check, roll, available,
-- take, wait, mark, give, ttl, change; it may set read_state, write_state and decide, which are declared in head.lua.
local HORIZON, MOST_LANES = 60000000, 32
local lanes_key = KEYS[2] or KEYS[1]

local function corrupt(field, text)
  problem = problem or {-8, 0, text and field .. '=' .. text or field}
end

-- Reads the stored parameters, how long the limiter is kept, the lane's record, and the state into s.
read_state = read_state or function()
  local read = call('HMGET', KEYS[1], 'c', 'k', '@' .. lane, unpack(NAMES))
  if read[4] or read[5] or read[6] then
    s = {}
    for i, name in ipairs(NAMES) do
      local text = read[i + 3]
      s[name] = text and name == 'w' and text or whole(text)
      if not s[name] then
        corrupt(name, text)
      end
    end
    if not read[1] then
      corrupt('c')
    end
  end
  return read[1], read[2], read[3]
end

-- Writes the state (nil: never used), the parameters and these other fields.
write_state = write_state or function(fields)
  if s then
    for _, name in ipairs(NAMES) do
      fields[#fields + 1] = name
      fields[#fields + 1] = name == 'w' and s.w or int(s[name])
    end
  else
    call('HDEL', KEYS[1], unpack(NAMES))
  end
  call('HSET', KEYS[1], 'c', wanted, unpack(fields))
end

-- Decides the requests in order. Of a call that was decided before, `free` is what it was granted.
decide = decide or function(free, is_replay)
  local granted, taken, sum, exact = 0, 0, 0, 0
  local blocked_wait
  for i = 1, #requests, 15 do
    local p, longest, count = struct.unpack('<I4I7I4', requests, i)
    local fit = sum == 0 and min(count, floor(free / p)) or 0
    answer(fit, 0, 0)
    free, granted, count = free - fit * p, granted + fit * p, count - fit
    if count > 0 and p > limit then
      answer(count, 5, 0)
    elseif count > 0 then
      if not is_replay and granted > taken then
        take(granted - taken)
        taken = granted
      end
      while count > 0 do
        local at_least, us = sum + p > limit and 1 or 0, blocked_wait
        if sum == 0 or sum < limit and exact < EXACT_WAITS then
          us = max(1, wait(min(sum + p, limit)))
          exact = exact + (sum > 0 and 1 or 0)
        else
          at_least = 1
        end
        local n = count
        -- With grants to follow it did not wait the first time, or it would have blocked them.
        if us <= longest * 1000 and not (is_replay and free > 0) then
          n = (sum < limit and exact < EXACT_WAITS) and 1 or count
          sum, blocked_wait = sum + n * p, us
          answer(n, 3 + at_least, us)
        else
          answer(n, 1 + at_least, us)
        end
        count = count - n
      end
    end
  end
  if not is_replay and granted > taken then
    take(granted - taken)
  end
  return granted
end

-- Permits used, under new parameters with this limit: as many, or as large a part, rounded up. In two steps of 16
-- bits, so that no product reaches 2^53.
local function scaled_by(old, new)
  return function(used)
    used = min(used, 4294967295)
    if action ~= 'scale' then
      return used
    end
    local high = floor(used / 65536) * new
    local low = high % old * 65536 + used % 65536 * new
    return min(floor(high / old) * 65536 + ceil(low / old), 4294967295)
  end
end

-- Puts the parameters `wanted` in force instead of the stored ones.
local function switch()
  local old = limit
  if not configure(wanted) then
    corrupt('c', wanted)
  end
  return scaled_by(old, limit)
end

-- Removes the records of lanes that made no call for so long that no attempt of it can follow.
local function sweep()
  local swept = tonumber(call('HGET', lanes_key, 'g') or '')
  if swept and floor(now / 1000) - swept < HORIZON / 1000 then
    return
  end
  local all = call('HGETALL', lanes_key)
  for i = 1, #all, 2 do
    local t = string.sub(all[i], 1, 1) == '@' and string.match(all[i + 1], '^%d+:(%d+):')
    if t and now - t > HORIZON then
      call('HDEL', lanes_key, all[i])
    end
  end
  call('HSET', lanes_key, 'g', int(now / 1000 - now / 1000 % 1))
end

-- Read.
local stored, kept, record = read_state()
if time_text == '' then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
else
  now = max(0, tonumber(time_text))
end
now = min(now, 5000000000000000)
if record then
  local n, t, g, m, f = string.match(record, '^(%d+):(%d+):(%d+):(%d+)/?(%d*)$')
  last, at, total, given, given_f = whole(n), whole(t), whole(g), whole(m), tonumber(f) or 0
  if not (last and at and total and given) then
    corrupt('@' .. lane, record)
  end
end
if kept and not whole(kept) then
  corrupt('k', kept)
end
if is_stored == '1' and not stored then
  return problem or {-9}
elseif not problem and not configure(stored or wanted) then
  corrupt('c', stored or wanted)
end
local wrong = s and not problem and check()
if wrong then
  corrupt(wrong, wrong == 'w' and s.w or int(s[wrong]))
end
if problem then
  return problem
end
if is_stored == '1' then
  wanted = stored
end

-- Decide.
local was_used, has_changed, gave = s, false, false
roll()
if lane ~= '' and record then
  number, abandon, max_age = number - 0, tonumber(abandon), tonumber(max_age)
  local is_too_old = max_age and now - at > max_age
  if last > number then
    return {-11}
  elseif last == number and action == 'give' then
    return {0, total}
  elseif last == number and not is_too_old then
    reply = {0, at, now, 1, available(), given, given_f}
    decide(total, true)
    return reply
  elseif total > 0 and (last == number or abandon and last >= abandon) then
    give(given, given_f, total)
    gave = true
  end
end
if action == 'reset' then
  switch()
  s, has_changed = nil, true
elseif stored and stored ~= wanted then
  has_changed = true
  if was_used then
    change(switch)
  else
    switch()
    s = nil
    roll()
  end
end
if problem then
  return problem
end

local granted, credit = 0, 0
local is_change = action ~= 'take' and action ~= 'give' and action ~= 'peek'
if action == 'peek' then
  local p, free = min(requests - 0, limit), available()
  local us = p > free and max(1, wait(p)) or 0
  return {0, free, limit, us, requests - 0 > limit and 1 or 0, wanted}
elseif action == 'take' then
  reply = {0, now, now, 0, 0, 0, 0}
  granted = decide(available(), false)
  reply[5] = available()
  reply[6], reply[7] = mark()
elseif action == 'give' then
  local m, f = string.match(requests, '^(%d+)/?(%d*)$')
  credit = give(tonumber(m), tonumber(f) or 0, permits - 0)
  reply = {0, credit}
end

-- Write. A denial writes nothing, unless time must begin for a limiter that starts with too few permits. A call
-- without requests leaves its record in any case, so that what it abandons is stale if it comes later.
local has_record = granted > 0 or credit > 0 or gave or action == 'take' and requests == ''
local begins = not was_used and has_denied
if not (has_record or has_changed or begins or is_change) then
  return reply
end
local fields = {}
if has_record then
  local m, f = mark()
  fields[1] = '@' .. lane
  fields[2] = string.format('%.0f:%.0f:%.0f:%.0f', number, now, granted + credit, m) .. (f > 0 and '/' .. int(f) or '')
end
if is_change then
  kept, fields[1], fields[2] = requests, 'k', requests
end
if not (was_used or granted > 0 or begins) then
  s = nil
end
write_state(fields)
local ms = s and ceil(ttl() / 1000) or 0
if kept ~= '0' then
  call('PEXPIRE', KEYS[1], int(max(tonumber(kept or '60000'), ms)))
elseif is_change then
  call('PERSIST', KEYS[1])
end
if not record and fields[1] and call('HLEN', lanes_key) > MOST_LANES then
  sweep()
end
return reply
