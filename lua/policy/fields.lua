-- Reads the limiter.
--
-- Sets   read: parameters, keep-alive, record of the lane, fields of the state; name_x, name_y, name_z: these fields
local kind, lane_field = string.sub(wanted, 1, 1), '@' .. lane
-- The fields of the state. Of two, the second is read twice.
local name_x, name_y, name_z = 'e', 'n', 'n'
if kind == 'b' then
  name_x, name_y, name_z = 't', 'f', 'u'
elseif kind == 'q' then
  name_x, name_y, name_z = 't', 'f', 'l'
elseif kind == 's' then
  name_x, name_y, name_z = 's', 'a', 'n'
elseif kind == 'i' then
  name_x, name_y, name_z = 'l', 'n', 'u'
elseif kind == 'r' then
  name_x, name_y, name_z = 'i', 'w', 'w'
end
local read = call('HMGET', KEYS[1], 'c', 'k', lane_field, name_x, name_y, name_z)
