-- Phase 1: the value after the drop. Twin: src/store/memory/settle.rs.
--
-- Sums are compared as differences from the rate: above 2^53 they would not be exact.
--
-- Reads  call, int, sum_log (part/live_log.lua)
-- Sets   in s, which already has known: the value before this, nil if it is missing or not an integer
--        is_another  whether the client last saw another type or rate; nil if it has seen nothing
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
  -- Only lower it: seemingly missing permits may belong to a lost log, and so be in use.
  local exceeds = s.is_another == nil and value > rate - credit - sum_log(s)
  if not exceeds and credit > 0 and credit <= rate and s.others == 0 then
    -- An older Redisson's entries do not say what else was used. (More than the rate is a pause's, which may be younger
    -- than what is still used of a lost log.)
    s.value = rate
  elseif exceeds or value > rate - credit then
    -- Permits that Redisson's release gave back are still in the log. They stay given back, and are not
    -- credited again when they expire. The value of a client of its own may be from a rate that is unknown
    -- to this call, but nobody releases permits of its log.
    local given_back = value <= rate and (s.is_another ~= nil or s.per_client == 0)
    s.value = math.max(given_back and value or -math.huge, rate - sum_log(s))
  else
    s.value, s.is_summed = value + credit, false
  end
end

-- Writes the value; `before`: the stored one. Unless it changes only by permits taken or given back, it is
-- set anew, and then has no time to live of its own.
local function write_value(s, before, value)
  if s.credit > 0 or s.value ~= s.known then
    call('SET', s.value_key, int(value))
  elseif value ~= before then
    call('INCRBY', s.value_key, int(value - before))
  end
end
