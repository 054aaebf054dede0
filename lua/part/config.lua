-- The rate in force and its keys. Twin: src/store/memory/config.rs.
--
-- Reads  fields (part/hash.lua), whole (part/numbers.lua), KEYS
-- Sets   s: the limiter as this call sees it: read first, then decided on, and then written. Each
--        part names the fields that it sets. Here: rate, interval, keep_alive: numbers;
--        per_client: 0 or 1; hash_key; value_key, log_key: of this mode if KEYS are all five, otherwise the second
--        and the third
local s = {hash_key = KEYS[1], value_key = '', log_key = '', rate = 0, interval = 0, keep_alive = 0,
  per_client = 0, now = 0, date = 0, known = false, value = 0, size = 0, expired = 0, rank = 0, is_settled = true,
  dropped = 0, credit = 0, others = 0, trimmed = 0, log_total = false, is_summed = false, deficit = 0, debt = 0,
  granted = 0, headroom = 0, own = {}, own_permits = 0, kept = 0, before = false, requests = false, budget = 0,
  queued = 0, waits = false, id = '', tail = 0, members = {}, permits = {}, changes = {}}

-- Returns the error reply if the rate cannot be read:
-- {-1, missing fields: 1 rate + 2 interval + 4 type} not initialized
-- {-2, field: 1 rate, 2 interval, 3 type, 4 keep-alive; its text} not readable
local function read_config(s)
  local missing = (fields[1] and 0 or 1) + (fields[2] and 0 or 2) + (fields[3] and 0 or 4)
  if missing > 0 then
    return {-1, missing}
  end
  s.rate, s.interval, s.keep_alive = whole(fields[1]), whole(fields[2]), whole(fields[4] or '0')
  if not s.rate or s.rate == 0 then
    return {-2, 1, fields[1]}
  elseif not s.interval or s.interval == 0 then
    return {-2, 2, fields[2]}
  elseif fields[3] ~= '0' and fields[3] ~= '1' then
    return {-2, 3, fields[3]}
  elseif not s.keep_alive then
    return {-2, 4, fields[4]}
  end
  s.per_client, s.value_key, s.log_key = fields[3] - 0, KEYS[2], KEYS[3]
  if s.per_client == 1 and KEYS[4] then
    s.value_key, s.log_key = KEYS[4], KEYS[5]
  end
end
