-- The rolling window: permits are counted in buckets, each of which leaves when its youngest permit is as old as
-- the window. Twin: src/policy/window.rs.
--
-- State: x is the number of the newest bucket since 1970; y is the sum of all counts. The tail has those of the earlier
-- buckets, newest first, in 4 bytes each.
local buckets, length = 0, 0
layout = '<I6I6I7I5'

local function sum(counts)
  local n = 0
  for i = 1, #counts, 4 do
    n = n + numbers('<I4', counts, i)
  end
  return n
end
--- parameters
if #text == 17 then
  local width
  limit, width, buckets = numbers('<I4I7I4', text, 3)
  length, size = width / buckets, 24 + 4 * buckets
  is_valid = buckets >= 1 and buckets <= 100 and width > 0 and length % 1 == 0
end
--- roll
local newest = floor(now / length)
if not x then
  x, y, tail = newest, 0, string.rep('\0', 4 * buckets)
elseif tail == '' then
  tail = string.sub(state, 25)
end
local ahead = newest - x
if ahead > 0 then
  local counts = string.rep('\0', 4 * min(ahead - 1, buckets)) .. pack('<I4', y - sum(tail)) .. tail
  tail = string.sub(counts, 1, 4 * buckets)
  y = sum(tail)
end
if ahead > 0 then
  x = newest
elseif ahead < -(buckets + 1) then
  -- The clock went back.
  x, is_behind = newest, true
end
free = max(0, limit - y)
--- take
y = y + p
ends = (x + buckets + 1) * length
--- wait
local left, age = y, buckets + 1
repeat
  age = age - 1
  left = age > 0 and left - numbers('<I4', tail, 4 * age - 3)
until not left or left + p <= limit
us = (x - age + 1 + buckets) * length - now
--- functions
-- The count of the bucket that is so much older than the newest.
local function count_of(age)
  return age > 0 and (numbers('<I4', tail, 4 * age - 3)) or y - sum(tail)
end

function give(mark, _, p)
  local age = x - mark
  local count = age >= 0 and age <= buckets and count_of(age) or 0
  local credit = min(p, count)
  if credit > 0 and age > 0 then
    tail = string.sub(tail, 1, 4 * age - 4) .. pack('<I4', count - credit) .. string.sub(tail, 4 * age + 1)
  end
  y = y - credit
  return credit
end

function change(switch)
  local before, newest, all, old = length, count_of(0), y, tail
  local scaled = switch()
  if length ~= before then
    x, newest, old = floor(now / length), all, ''
  end
  y, tail = scaled(newest), ''
  for i = 1, 4 * buckets, 4 do
    local count = i < #old and scaled((numbers('<I4', old, i))) or 0
    y, tail = y + count, tail .. pack('<I4', count)
  end
end
