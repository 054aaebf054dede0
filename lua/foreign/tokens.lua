-- Token buckets of other services: a hash with whole tokens, and the time in milliseconds of those added last.
--
--   F  the funnel (Go), at org/path. It reads its fields by their place, so they must be in this order
--   A  the bucket with a list of applications
--
-- The others lose the fraction of a token at each call. Here the time stands where the last whole token was added,
-- so that it is not lost, and they go on from there.
local kind, rate = string.sub(wanted, 1, 1), 0
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

function configure(text)
  return kind == 'F' and text == 'F1' or string.sub(text, 1, 3) == 'A1:'
end

local function read_funnel()
  local all = call('HGETALL', key)
  local texts = {}
  for i, name in ipairs(FIELDS) do
    if all[i * 2 - 1] ~= name or all[9] then
      problem = problem or {-13, 0, 'the fields must be ' .. table.concat(FIELDS, ', ') .. ', in this order'}
    end
    texts[i] = all[i * 2]
  end
  return texts
end

local function is_listed(apps, app)
  for name in string.gmatch(apps or '', '[^,]+') do
    if string.match(name, '^%s*(.-)%s*$') == app then
      return true
    end
  end
end

read_state = function()
  local texts = kind == 'F' and read_funnel() or call('HMGET', key, unpack(FIELDS))
  if kind == 'A' and not is_listed(texts[5], string.sub(wanted, 4)) then
    problem = problem or {-12, 0, 'the application is not in the field apps'}
  end
  local most = decimal(FIELDS[1], texts[1], 0)
  rate, limit = decimal(FIELDS[2], texts[2], 0), min(4294967295, floor(most))
  if most / rate > 3155760000000 / (kind == 'F' and 1 or 1000) then
    -- A century.
    unreadable(FIELDS[2], texts[2])
  end
  s = {tokens = most, most = most}
  if kind == 'F' or texts[4] then
    s.tokens = decimal(FIELDS[3], texts[3], -9007199254740991)
    s.last = decimal(FIELDS[4], texts[4], 0)
  end
  return read_record()
end

function roll()
  local now_ms = floor(now / 1000)
  local gain = s.last and now_ms > s.last and gained(now_ms - s.last) or 0
  if s.tokens + gain >= s.most then
    s.tokens, s.last = s.most, max(s.last or 0, now_ms)
  elseif gain >= 1 then
    -- Until something is taken, who looks later finds the tokens and the time as they were.
    s.stored_tokens, s.stored_last = s.tokens, s.last
    s.tokens, s.last = s.tokens + gain, s.last + time_for(gain)
  end
end

function available()
  return max(0, min(limit, floor(s.tokens)))
end

local function add(p)
  s.tokens, s.stored_last = s.tokens + p, nil
end

function take(p)
  add(-p)
end

function wait(p)
  if s.stored_last then
    return (s.stored_last + time_for(p - s.stored_tokens)) * 1000 - now
  end
  return (s.last + time_for(p - s.tokens)) * 1000 - now
end

function mark()
  return 0, 0
end

function give(_, _, p)
  local credit = max(0, min(p, floor(s.most - s.tokens)))
  add(credit)
  return credit
end

write_state = function(fields)
  call('HSET', key, FIELDS[3], int(floor(s.tokens)), FIELDS[4], int(s.last))
  write_record(fields)
end
