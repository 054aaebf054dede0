-- Writes the limiter, unless nothing has changed. A denial writes nothing, unless time must begin for a limiter that
-- starts with too few permits. A call without requests leaves its record in any case, so that what it abandons is
-- stale if it comes later.
local HORIZON, MOST_LANES = 60000000, 32
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
