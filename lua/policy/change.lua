-- Looks for the call, gives back what the lane has abandoned, and puts the call's parameters in force.
local is_change = action == 'keep' or action == 'scale' or action == 'reset'
-- What came back of what was abandoned; nil if nothing was.
local has_changed, is_replay, gave = false, false, nil
local total, given, given_f, left, _ = 0, 0, 0, nil, nil
if record then
  _, _, total, given, left, given_f = numbers(RECORD, record)
  local first, max_age = number, math.huge
  if (again or '') ~= '' then
    first, max_age = numbers('<I7I7', again)
    if version and first > 0 and (left ~= version or at > now) then
      -- What a queue has granted under other parameters, or before the clock went back, starts by those: the call is
      -- decided anew. (What a key was granted starts at once.)
      max_age = -math.huge
    end
  end
  is_replay = last >= first and now - at <= max_age
  if last > number then
    return {-11}
  elseif is_replay and action == 'give' then
    return {0, total}
  elseif not is_replay and total > 0 and first > 0 and last >= min(first, tonumber(abandon) or first) then
    gave = give(given, given_f, total)
    roll()
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
    configure(wanted)
    if not is_valid then
      failure = failure or {-8, 0, 'c=' .. wanted}
    end
    -- Those beyond the limit are kept apart, so that they count again if it is raised.
    return scaled, function(used)
      used = scaled(used + (tail == '' and 0 or numbers('<I4', tail)))
      tail = used > limit and pack('<I4', used - limit) or ''
      return min(used, limit)
    end
  end
  has_changed = true
  if was_used and action ~= 'reset' and is_stored ~= 'config' then
    change(switch)
    roll()
  else
    -- Under a new configuration of RGcra nothing counts as used, as there.
    switch()
    x, was_used = nil, nil
    roll()
  end
end
if failure then
  return failure
end
