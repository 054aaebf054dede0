-- Token buckets of other services: a hash with whole tokens, and the time in milliseconds of those added last.
--
--   F  the funnel (Go), at org/path. It reads its fields by their place, so they must be in this order
--   A  the bucket with a list of applications
--
-- The others lose the fraction of a token at each call. Here the time stands where the last whole token was added,
-- so that it is not lost, and they go on from there.
local rate, most, tokens, since, stored_tokens, stored_since = 0
local FIELDS = kind == 'F' and {'Capacity', 'LeakingRate', 'RemainingCapacity', 'LastLeakingTime'}
  or {'max_permits', 'rate', 'curr_permits', 'last_mill_second', 'apps'}

-- The tokens of so many milliseconds, computed as the others do.
local function gained(ms)
  return floor(kind == 'F' and ms * rate or ms / 1000 * rate)
end

-- The milliseconds in which so many tokens are gained.
local function time_for(tokens)
  local ms = ceil(kind == 'F' and tokens / rate or tokens * 1000 / rate)
  -- Beyond this, one more is none.
  while ms < 4503599627370496 and gained(ms) < tokens do
    ms = ms + 1
  end
  while gained(ms - 1) >= tokens do
    ms = ms - 1
  end
  return min(ms, 4503599627370)
end

local texts = {}
if kind == 'F' then
  local all = call('HGETALL', key)
  for i, name in ipairs(FIELDS) do
    if all[i * 2 - 1] ~= name or all[9] then
      failure = failure or {-13, 0, 'the fields must be ' .. table.concat(FIELDS, ', ') .. ', in this order'}
    end
    texts[i] = all[i * 2]
  end
else
  texts = call('HMGET', key, unpack(FIELDS))
  local app, is_listed = string.sub(wanted, 2), false
  for name in string.gmatch(texts[5] or '', '[^,]+') do
    is_listed = is_listed or string.match(name, '^%s*(.-)%s*$') == app
  end
  if not is_listed then
    failure = {-12, 0, 'the application is not in the field apps'}
  end
end
most = decimal(FIELDS[1], texts[1], 0)
rate, limit = decimal(FIELDS[2], texts[2], 0), min(4294967295, floor(most))
if most / rate > 3155760000000 / (kind == 'F' and 1 or 1000) then
  -- A century.
  unreadable(FIELDS[2], texts[2])
end
x, tokens = 0, most
if kind == 'F' or texts[4] then
  tokens = decimal(FIELDS[3], texts[3], -9007199254740991)
  since = decimal(FIELDS[4], texts[4], 0)
end
--- roll
local now_ms = floor(now / 1000)
local gain = since and now_ms > since and gained(now_ms - since) or 0
if tokens + gain >= most then
  tokens, since = most, max(since or 0, now_ms)
elseif gain >= 1 then
  -- Until something is taken, who looks later finds the tokens and the time as they were.
  stored_tokens, stored_since = tokens, since
  tokens, since = tokens + gain, since + time_for(gain)
end
free = max(0, min(limit, floor(tokens)))
--- take
if p > 0 then
  tokens, stored_since = tokens - p, nil
end
--- wait
if stored_since then
  us = (stored_since + time_for(p - stored_tokens)) * 1000 - now
else
  us = (since + time_for(p - tokens)) * 1000 - now
end
--- write
call('HSET', key, FIELDS[3], format('%d', floor(tokens)), FIELDS[4], format('%d', since))
--- functions
function give(_, _, p)
  local credit = max(0, min(p, floor(most - tokens)))
  tokens, stored_since = tokens + credit, nil
  return credit
end
