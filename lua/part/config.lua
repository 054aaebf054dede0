-- The rate in force and the keys that it uses. Twin: src/store/memory/config.rs.
--
-- Reads  fields (part/hash.lua), whole (part/numbers.lua), KEYS
-- Sets   rate, interval, keep_alive: numbers; per_client: 0 or 1; value_key, log_key: of this mode if KEYS
--        are all five, otherwise the second and the third
local rate, interval, keep_alive, per_client, value_key, log_key

-- Reads them from `fields`. Returns the error reply if that cannot be done:
-- {-1, missing fields: 1 rate + 2 interval + 4 type} not initialized
-- {-2, field: 1 rate, 2 interval, 3 type, 4 keep-alive; its text} not readable
local function read_config()
  local missing = (fields[1] and 0 or 1) + (fields[2] and 0 or 2) + (fields[3] and 0 or 4)
  if missing > 0 then
    return {-1, missing}
  end
  rate, interval = whole(fields[1]), whole(fields[2])
  if not rate or rate == 0 then
    return {-2, 1, fields[1]}
  end
  if not interval or interval == 0 then
    return {-2, 2, fields[2]}
  end
  if fields[3] ~= '0' and fields[3] ~= '1' then
    return {-2, 3, fields[3]}
  end
  per_client, value_key, log_key = fields[3] - 0, KEYS[2], KEYS[3]
  if per_client == 1 and KEYS[4] then
    value_key, log_key = KEYS[4], KEYS[5]
  end
  keep_alive = whole(fields[4] or '0')
  if not keep_alive then
    return {-2, 4, fields[4]}
  end
end
