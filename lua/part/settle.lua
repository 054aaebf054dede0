-- Phase 1: the value after the drop. Twin: src/store/memory/settle.rs.
--
-- Sums are compared as differences from the rate: above 2^53 they would not be exact.
--
-- Reads  call, int, sum_log (part/live_log.lua)
-- Sets   in s, which has known: the value before this, nil if it is missing or no integer
--        is_another  whether type or rate are not those that the client saw; nil if it has seen nothing
--        value       the value by the rules
--        is_summed   whether the log has been summed for this, or is empty

-- `seen`: the type, rate, interval and keep-alive that the client last saw in the hash; '' for nothing.
local function read_seen(s, seen)
  local seen_type, seen_rate = string.match(seen, '^(%d) (%d+)')
  if seen_type then
    s.is_another = seen_type - 0 ~= s.per_client or seen_rate - 0 ~= s.rate
  end
end

-- Fits the value to the rate and the log, by the first rule that applies.
local function settle(s)
  local value, rate, credit = s.known, s.rate, s.credit
  s.is_summed = true
  if not value or s.is_another then
    s.value = rate - sum_log(s)
    return
  end
  -- Downwards only: what seems to be missing may be a log that was lost, and then it was used.
  local exceeds = s.is_another == nil and value > rate - credit - sum_log(s)
  if not exceeds and credit > 0 and s.left == 0 then
    -- What an older Redisson logged says nothing of what else was used.
    s.value = rate
  elseif exceeds or credit > 0 and value > rate - credit then
    -- What Redisson's release has given back is still in the log. It stays given back, and is not
    -- credited again when it expires. The value of a client of its own may be from the time of a rate
    -- that it does not know, but nobody releases what is in its log.
    local given_back = value <= rate and (s.is_another ~= nil or s.per_client == 0)
    s.value = math.max(given_back and value or -math.huge, rate - sum_log(s))
  else
    s.value, s.is_summed = value + credit, false
  end
end

-- Writes the value; `before`: as it is. By other rules than that permits are taken or given back it is
-- written anew, and has no time to live of its own then.
local function write_value(s, before, value)
  if s.credit > 0 or s.value ~= s.known then
    call('SET', s.value_key, int(value))
  elseif value ~= before then
    call('INCRBY', s.value_key, int(value - before))
  end
end
