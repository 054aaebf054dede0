-- The rate in force and the keys that it uses.
local rate, interval, keep_alive, per_client, value_key, log_key

-- Reads them from `fields`; answers the error reply where that cannot be done:
-- {-1, missing fields: 1 rate + 2 interval + 4 type} not initialized
-- {-2, field: 1 rate, 2 interval, 3 type, 4 keep-alive; its text} not readable
local function read_state()
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
  if fields[3] == '0' then
    per_client, value_key, log_key = 0, KEYS[2], KEYS[3]
  elseif fields[3] == '1' then
    per_client, value_key, log_key = 1, KEYS[4], KEYS[5]
  else
    return {-2, 3, fields[3]}
  end
  keep_alive = whole(fields[4] or '0')
  if not keep_alive then
    return {-2, 4, fields[4]}
  end
end

-- What every call does at its end, refusals included: the value and the log live as long as the
-- hash.
local function refresh_lifetime()
  if keep_alive > 0 then
    local ms = int(keep_alive)
    call('PEXPIRE', KEYS[1], ms)
    call('PEXPIRE', value_key, ms)
    call('PEXPIRE', log_key, ms)
  else
    local ms = call('PTTL', KEYS[1])
    if ms > 0 then
      call('PEXPIRE', value_key, int(ms))
      call('PEXPIRE', log_key, int(ms))
    end
  end
end
