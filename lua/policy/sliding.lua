-- The sliding counter: the window before counts by the part of it that still overlaps. Twin: src/policy/window.rs.
--
-- State: x is the start of the current window; y permits were used in the one before, z in this one. Parts of a
-- window are counted in ticks, so that limit times ticks stays below 2^52.
local width, tick, ticks = 0, 1, 0
--- parameters
if #text == 13 then
  limit, width = numbers('<I4I7', text, 3)
  tick = 1
  while limit * (width / tick) >= 4503599627370496 do
    tick = tick * 10
  end
  ticks = width / tick
  is_valid = width > 0 and ticks % 1 == 0
end
--- roll
local start = now - now % width
if not x or start - x > width then
  x, y, z = start, 0, 0
elseif start > x then
  x, y, z = start, z, 0
elseif x - now > width then
  -- The clock went back.
  x, y, z, is_behind = start, 0, y + z, true
end
local over = max(0, floor((now - x) / tick))
free = max(0, floor((limit * ticks - y * (ticks - over)) / ticks) - z)
--- take
z = z + p
ends = x + 2 * width
--- wait
local room = limit - z - p
if room >= 0 then
  us = x + (ticks - floor(room * ticks / y)) * tick - now
else
  us = x + width + max(0, ticks - floor((limit - p) * ticks / z)) * tick - now
end
--- functions
function give(mark, _, p)
  local credit = 0
  if mark == x then
    credit = min(p, z)
    z = z - credit
  elseif mark == x - width then
    credit = min(p, y)
    y = y - credit
  end
  return credit
end

function change(switch)
  local over = max(0, floor((now - x) / tick))
  -- Without an exact product all of them count; there are more than twice the limit.
  local counts = y * (ticks - over)
  local before, used = width, (counts < 2^53 and limit - floor((limit * ticks - counts) / ticks) or y) + z
  local scaled = switch()
  if width ~= before then
    x, y, z = now - now % width, 0, used
  end
  y, z = scaled(y), scaled(z)
end
