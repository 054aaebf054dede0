-- The end of a policy's script, behind the policy's file: reads, decides, writes. Twin: src/policy/frame.rs.
--
-- usual.lua has read the fields and declares NAMES, those of the state. The policy's file declares the functions
-- configure, roll, available, take, wait, mark, give, ttl, change; it may set what names.lua says.
-- What is needed once is no function: each costs a tenth of a microsecond to make.
local HORIZON, MOST_LANES = 60000000, 32

local function corrupt(field, text)
  problem = problem or {-8, 0, text and field .. '=' .. text or field}
end

-- Read.
local stored, kept, record
if read_state then
  stored, kept, record = read_state()
else
  stored, kept, record = read[1], read[2], read[3]
  if read[4] or read[5] or read[6] then
    s = {}
    for i = 1, #NAMES do
      local name, text = NAMES[i], read[i + 3]
      s[name] = name == 'w' and text or whole(text)
      if not s[name] then
        corrupt(name, text)
      end
    end
    if not stored then
      corrupt('c')
    end
  end
end
if record then
  last, at, total, given, given_f = string.match(record, '^(%d+):(%d+):(%d+):(%d+)/?(%d*)$')
  if last then
    last, at, total, given, given_f = last + 0, at + 0, total + 0, given + 0, tonumber(given_f) or 0
  else
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
local wrong = check and s and not problem and check()
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
local is_change = action == 'keep' or action == 'scale' or action == 'reset'
local was_used, has_changed, gave, is_replay = s, false, false, false
roll()
if lane ~= '' and record then
  number, abandon, max_age = number - 0, tonumber(abandon), tonumber(max_age)
  is_replay = last == number and not (max_age and now - at > max_age)
  if last > number then
    return {-11}
  elseif is_replay and action == 'give' then
    return {0, total}
  elseif not is_replay and total > 0 and (last == number or abandon and last >= abandon) then
    give(given, given_f, total)
    gave = true
  end
end
if not is_replay and (action == 'reset' or stored and stored ~= wanted) then
  -- Permits used, under the new parameters: as many, or as large a part of the limit, rounded up. In two steps of
  -- 16 bits, so that no product reaches 2^53.
  local old = limit
  local function scaled(used)
    used = min(used, 4294967295)
    if action ~= 'scale' then
      return used
    end
    local high = floor(used / 65536) * limit
    local low = high % old * 65536 + used % 65536 * limit
    return min(floor(high / old) * 65536 + ceil(low / old), 4294967295)
  end
  local function switch()
    if not configure(wanted) then
      corrupt('c', wanted)
    end
    return scaled
  end
  has_changed = true
  if action == 'reset' then
    switch()
    s = nil
  elseif was_used then
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
if action == 'peek' then
  local p, free = min(requests - 0, limit), available()
  local us = p > free and max(1, wait(p)) or 0
  return {0, free, limit, us, requests - 0 > limit and 1 or 0, wanted}
elseif action == 'give' then
  local m, f = string.match(requests, '^(%d+)/?(%d*)$')
  credit = give(tonumber(m), tonumber(f) or 0, permits - 0)
  reply = {0, credit}
elseif not is_change then
  -- Of a call that was decided before, what it was granted is granted again.
  local free = available()
  if is_replay then
    reply, free = {0, at, now, 1, free, given, given_f}, total
  else
    reply = {0, now, now, 0, 0, 0, 0}
  end
  if decide then
    granted = decide(free, is_replay)
  else
    local taken, sum, exact, blocked_wait = 0, 0, 0, 0
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
  end
  if is_replay then
    return reply
  end
  reply[5] = decide and available() or free
  reply[6], reply[7] = mark()
end

-- Write. A denial writes nothing, unless time must begin for a limiter that starts with too few permits. A call
-- without requests leaves its record in any case, so that what it abandons is stale if it comes later.
local has_record = granted > 0 or credit > 0 or gave or requests == ''
local begins = not was_used and has_denied
if not (has_record or has_changed or begins or is_change) then
  return reply
end
local fields = {}
if stored ~= wanted then
  fields = {'c', wanted}
end
if has_record then
  local m, f = mark()
  fields[#fields + 1] = '@' .. lane
  fields[#fields + 1] = format('%s:%d:%d:%d', number, now, granted + credit, m) .. (f > 0 and '/' .. int(f) or '')
elseif is_change then
  kept, fields[#fields + 1], fields[#fields + 2] = requests, 'k', requests
end
if not (was_used or granted > 0 or begins) then
  s = nil
end
if write_state then
  write_state(fields)
else
  for i = 1, s and #NAMES or 0 do
    local name, next = NAMES[i], #fields + 1
    fields[next], fields[next + 1] = name, name == 'w' and s.w or int(s[name])
  end
  if not s then
    call('HDEL', KEYS[1], unpack(NAMES))
  end
  call('HSET', KEYS[1], unpack(fields))
end
if kept ~= '0' then
  call('PEXPIRE', KEYS[1], int(max(tonumber(kept) or HORIZON / 1000, s and ceil(ttl() / 1000) or 0)))
elseif is_change then
  call('PERSIST', KEYS[1])
end
local lanes_key = KEYS[2] or KEYS[1]
if not record and has_record and call('HLEN', lanes_key) > MOST_LANES then
  -- Remove the records of lanes that made no call for so long that no attempt of it can follow.
  local swept = tonumber(call('HGET', lanes_key, 'g') or '')
  if not swept or floor(now / 1000) - swept >= HORIZON / 1000 then
    local all = call('HGETALL', lanes_key)
    for i = 1, #all, 2 do
      local t = string.sub(all[i], 1, 1) == '@' and string.match(all[i + 1], '^%d+:(%d+):')
      if t and now - t > HORIZON then
        call('HDEL', lanes_key, all[i])
      end
    end
    call('HSET', lanes_key, 'g', int(floor(now / 1000)))
  end
end
return reply
