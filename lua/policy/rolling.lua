-- The rolling window: permits are counted in buckets, each of which leaves when its youngest permit is as old as
-- the window. Twin: src/policy/rolling.rs.
--
-- State: i is the number of the newest bucket since 1970; w has the counts, newest first, with commas between them
-- and without zeros at the end.
local buckets, length, counts, sum = 0, 0, {}, 0

function configure(text)
  local width
  limit, width, buckets = numbers(text, '^r1:(%d+),(%d+),(%d+)$')
  if is_permits(limit) and is_span(width) and buckets and buckets >= 1 and buckets <= 100 then
    length = width / buckets
    return length % 1 == 0
  end
end

local function pack()
  while counts[1] and counts[#counts] == 0 do
    counts[#counts] = nil
  end
  local texts = {}
  for i = 1, #counts do
    texts[i] = int(counts[i])
  end
  s.w = table.concat(texts, ',')
end

check = function()
  for text in string.gmatch(s.w .. (s.w ~= '' and ',' or ''), '([^,]*),') do
    local n = whole(text)
    if not n or #counts > buckets then
      return 'w'
    end
    counts[#counts + 1], sum = n, sum + n
  end
end

function roll()
  local newest = floor(now / length)
  s = s or {i = newest, w = ''}
  local ahead = newest - s.i
  if ahead > 0 then
    for i = buckets + 1, 1, -1 do
      local n = counts[i - ahead] or 0
      sum = sum - (counts[i] or 0) + n
      counts[i] = n
    end
    s.i = newest
  elseif ahead < -(buckets + 1) then
    -- The clock went back.
    s.i = newest
  end
  pack()
end

function available()
  return max(0, limit - sum)
end

function take(p)
  counts[1], sum = (counts[1] or 0) + p, sum + p
  pack()
end

function wait(p)
  local left, at = sum, #counts
  while at > 1 and left - counts[at] + p > limit do
    left = left - counts[at]
    at = at - 1
  end
  return (s.i - at + 2 + buckets) * length - now
end

function mark()
  return s.i, 0
end

function give(given, _, p)
  local at = s.i - given + 1
  local credit = min(p, counts[at] or 0)
  if credit > 0 then
    counts[at], sum = counts[at] - credit, sum - credit
    pack()
  end
  return credit
end

function ttl()
  return (s.i + buckets + 1) * length - now
end

function change(switch)
  local before, used = length, sum
  local scaled = switch()
  if length ~= before then
    s.i, counts = floor(now / length), {used}
  end
  sum = 0
  for i = 1, #counts do
    counts[i] = i <= buckets + 1 and scaled(counts[i]) or nil
    sum = sum + (counts[i] or 0)
  end
  pack()
end
