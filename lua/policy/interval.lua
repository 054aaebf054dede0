-- The interval bucket: a portion of permits at the end of each period. Twin: src/policy/bucket.rs.
--
-- State: x counts the permits ever taken, from the time of the first use on; y permits are left; z is the time of the
-- last portion.
-- If there were always portions, the last one by now is at `latest`.
local refill, period, initial, is_aligned, latest = 0, 0, 0, false, 0
has_excess = true

--- parameters
if #text == 28 then
  -- Aligned is 0 if the first use begins the first period, else 1 more than a time at which a portion comes.
  local aligned
  limit, refill, period, initial, aligned = numbers('<I4I4I7I4I7', text, 3)
  is_valid, is_aligned = refill > 0 and period > 0 and initial <= limit, aligned > 0
  latest = is_aligned and max(0, now - (now - aligned + 1) % period) or now
end
--- roll
if not x then
  x, y, z = now, initial, latest
end
local portions = floor((now - z) / period)
if portions >= 1 then
  y = max(y, min(limit, y + min(portions, ceil(limit / refill)) * refill))
  z = z + portions * period
elseif portions < -1 then
  -- The clock went back.
  z = latest
end
free = min(y, limit)
if free == limit then
  tail = ''
end
--- take
x, y = x + p, y - p
local kept = initial < limit and ceil(limit / refill) * period + 60000000 or 0
ends = z + ceil(max(0, limit - y) / refill) * period + kept
--- wait
us = z + ceil((p - y) / refill) * period - now
--- functions
function give(mark, _, p)
  if mark > x then
    return 0
  end
  local left = max(y, min(y + p, limit - (x - mark)))
  local credit = left - y
  y = left
  return credit
end

function change(switch)
  local used = limit - y
  local _, clamped = switch()
  y = limit - clamped(max(0, used))
  z = is_aligned and latest or z + max(0, floor((now - z) / period)) * period
end
