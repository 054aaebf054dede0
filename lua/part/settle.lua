-- Phase 1: the value after the drop. Twin: src/store/memory/settle.rs.
--
-- Sums are compared as differences from the rate: above 2^53 they would not be exact.
--
-- Reads  call, int; now_text (part/clock.lua); integer (part/numbers.lua); rate, per_client, value_key
--        (part/config.lua); now, count, dropped, credit, log_total, read_log, read_expired, sum_log
--        (part/live_log.lua)
-- Sets   value
local value -- nil if it is missing or no integer

-- Whether type or rate in the hash are not those that this client last saw there: `seen` is its
-- type, rate, interval and keep-alive, or '' for nothing.
local function is_another(seen)
  local seen_type, seen_rate = string.match(seen, '^(%d) (%d+)')
  return seen ~= '' and (tonumber(seen_type) ~= per_client or tonumber(seen_rate) ~= rate)
end

-- Fits the value to the rate and the log, by the first rule that applies. Returns true if the log has
-- been summed or is empty, false if the value is only what it was and what has expired, nil if a foreign
-- entry is live.
local function settle(seen)
  local left = count - dropped
  if not value or is_another(seen) then
    if not sum_log() then
      return nil
    end
    value = rate - log_total
    return true
  end
  -- Downwards only: what seems to be missing may be a log that was lost, and then it was used.
  if seen == '' and not sum_log() then
    return nil
  end
  local exceeds = seen == '' and value > rate - credit - log_total
  -- What an older Redisson logged says nothing of what else was used.
  if not exceeds and credit > 0 and left == 0 then
    value = rate
    return true
  end
  if exceeds or credit > 0 and value > rate - credit then
    if not sum_log() then
      return nil
    end
    -- What Redisson's release has given back is still in the log. It stays given back, and is not
    -- credited again when it expires. The value of a client of its own may be from the time of a rate
    -- that it does not know, but nobody releases what is in its log.
    local given_back = value <= rate and (seen ~= '' or per_client == 0)
    value = math.max(given_back and value or -math.huge, rate - log_total)
    return true
  end
  value = value + credit
  return false
end

-- Reads the value, and the log without all that has expired; returns the value, which `settle` changes.
local function read_all()
  now = tonumber(now_text)
  value = integer(call('GET', value_key))
  read_log()
  read_expired(math.huge, math.huge)
  return value
end

-- Writes the value, which was `before`; `changed`: by other rules than that permits are taken or given
-- back.
local function write_value(before, changed)
  if changed then
    call('SET', value_key, int(value))
  elseif value ~= before then
    call('INCRBY', value_key, int(value - before))
  end
end
