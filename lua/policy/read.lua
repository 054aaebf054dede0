-- Reads the limiter, gives back what the lane has abandoned, and puts the call's parameters in force.
--
-- A policy's file has set the functions that names.lua declares.
-- What is needed once is no function: each costs a tenth of a microsecond to make.
local NAMES = not read_state and {name_x, name_y, name_z ~= name_y and name_z or nil}

local function corrupt(field, text)
  problem = problem or {-8, 0, text and field .. '=' .. text or field}
end

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
  elseif was_used and is_stored ~= 'config' then
    change(switch)
  else
    -- Under a new configuration of RGcra nothing counts as used, as there.
    switch()
    s, was_used = nil, nil
    roll()
  end
end
if problem then
  return problem
end

local granted, credit = 0, 0
