-- Reads the limiter.
local key = KEYS[1]
local read = call('HMGET', key, 'c', 's', lane)
local stored, record = read[1], read[3]
local deadline, kept, lanes_key, is_foreign = 0, HORIZON, key, false
state = read[2]
if is_stored == '1' and not stored then
  return {-9}
end
do
  local text = stored or wanted
--> parameters
end
if not is_valid or limit < 1 or
    stored and stored ~= wanted and string.sub(stored, 1, 2) ~= string.sub(wanted, 1, 2) then
  failure = {-8, 0, 'c=' .. (stored or wanted)}
elseif state and not stored then
  failure = {-8, 0, 'c'}
elseif state and (#state == size or has_excess and #state == size + 4) then
  deadline, kept, x, y, z = numbers(layout, state)
  tail = has_excess and string.sub(state, size + 1) or tail
elseif state and #state == 12 then
  deadline, kept = numbers('<I6I6', state)
elseif state then
  failure = {-8, 0, 's=' .. state}
end
if is_stored == '1' then
  wanted = stored
end
