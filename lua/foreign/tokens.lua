-- Token buckets of other services: a hash with whole tokens, and the time in milliseconds of those added last.
--
--   F  the funnel (Go), at org/path. It reads its fields by their place, so they must be in this order
--   A  the bucket with a list of applications. The parameters are a pattern: one of the names, between commas
--
-- The others lose the fraction of a token at each call. Here the time stands where the last whole token was added,
-- so that it is not lost, and they go on from there.
local kind = string.sub(wanted, 1, 1)
local MOST, RATE, TOKENS, SINCE = 'max_permits', 'rate', 'curr_permits', 'last_mill_second'
local fields, since, stored_tokens, stored_since
-- The rate is by so many milliseconds.
local unit = 1000
if kind == 'F' then
  MOST, RATE, TOKENS, SINCE, unit = 'Capacity', 'LeakingRate', 'RemainingCapacity', 'LastLeakingTime', 1
  fields = call('HMGET', key, MOST, RATE, TOKENS, SINCE)
  -- A lane that has just called has seen the order.
  local all = not record and call('HGETALL', key)
  if all and (all[1] ~= MOST or all[3] ~= RATE or all[5] ~= TOKENS or all[7] ~= SINCE or all[9]) then
    local order = table.concat({MOST, RATE, TOKENS, SINCE}, ', ')
    failure = {-13, 0, 'the fields must be ' .. order .. ', in this order'}
  end
else
  fields = call('HMGET', key, MOST, RATE, TOKENS, SINCE, 'apps')
  if not string.find(fields[5] or '', wanted) then
    failure = {-12, 0, 'the application is not in the field apps'}
  end
end
local most, rate, tokens = decimal(MOST, fields[1], 0), decimal(RATE, fields[2], 0), nil
limit = most < 4294967295 and most - most % 1 or 4294967295
if most * unit / rate > 3155760000000 then
  -- A century.
  decimal(RATE, rate, 0, 0)
end
if kind == 'F' or fields[4] then
  tokens, since = decimal(TOKENS, fields[3], -9007199254740991), decimal(SINCE, fields[4], 0)
else
  tokens = most
end
x = 0
--- roll
local now_ms = (now - now % 1000) / 1000
-- As the others count it.
local gain = since and now_ms > since and (now_ms - since) / unit * rate or 0
gain = gain - gain % 1
if tokens + gain >= most then
  tokens, since = most, max(since or 0, now_ms)
elseif gain >= 1 then
  -- Until something is taken, who looks later finds the tokens and the time as they were.
  stored_tokens, stored_since = tokens, since
  local gained, ms = gain, nil
--> time
  tokens, since = tokens + gain, since + ms
end
free = tokens > limit and limit or tokens > 0 and tokens - tokens % 1 or 0
--- take
if p > 0 then
  tokens, stored_since = tokens - p, nil
end
--- wait
local gained, ms = ceil(p - (stored_since and stored_tokens or tokens)), nil
--> time
us = ((stored_since or since) + ms) * 1000 - now
--- time
-- The milliseconds in which so many tokens are gained; beyond 2^52, one more is none.
ms = gained * unit / rate
ms = ms - ms % 1
while ms < 4503599627370496 and ms / unit * rate < gained do
  ms = ms + 1
end
while ms < 4503599627370496 and (ms - 1) / unit * rate >= gained do
  ms = ms - 1
end
ms = ms < 4503599627370 and ms or 4503599627370
--- write
call('HSET', key, TOKENS, format('%d', tokens - tokens % 1), SINCE, format('%d', since))
--- functions
function give(_, _, p)
  local credit = max(0, min(p, floor(most - tokens)))
  tokens, stored_since = tokens + credit, nil
  return credit
end
