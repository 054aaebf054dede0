-- The interval bucket: a portion of permits at the end of each period. Twin: src/policy/bucket.rs.
--
-- State: x counts the permits ever taken, from the time of the first use on; y permits are left; z is the time of the
-- last portion.
-- Portions come at times that are 1 less than `aligned` modulo the period; if that is 0, a period after the last one. By
-- now the last one of these times is `latest`. After a change `z` need not be one of them: then portions are counted from
-- the first one after it, `ahead` later.
local refill, period, initial, aligned, latest, ahead = 0, 0, 0, 0, 0, 0
has_excess = true

--- parameters
if #text == 28 then
  limit, refill, period, initial, aligned = numbers('<I4I4I7I4I7', text, 3)
  is_valid = refill > 0 and period > 0 and initial <= limit
  latest = aligned > 0 and max(0, now - (now - aligned + 1) % period) or now
end
--- roll
if not x then
  x, y, z = now, initial, latest
end
local portions = floor((latest - z) / period)
if portions >= 1 then
  -- What comes beyond the limit counts for the permits that were used beyond it.
  local excess = tail == '' and 0 or numbers('<I4', tail)
  local left = y + min(portions, ceil((limit + excess) / refill)) * refill
  excess = max(0, excess - max(0, left - limit))
  y, tail = max(y, min(limit, left)), excess > 0 and pack('<I4', excess) or ''
  z = aligned > 0 and latest or z + portions * period
elseif z - now > period then
  -- The clock went back.
  z, is_behind = latest, true
end
ahead = aligned > 0 and (aligned - 1 - z) % period or 0
free = min(y, limit)
--- take
x, y = x + p, y - p
local kept = initial < limit and ceil(limit / refill) * period + 60000000 or 0
local missing = max(0, limit - y) + (tail == '' and 0 or numbers('<I4', tail))
ends = z + ahead + min(3155760000000000, ceil(missing / refill) * period) + kept
--- wait
us = z + ahead + ceil((p - y) / refill) * period - now
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
  local used, before = limit - y, period
  local _, clamped = switch()
  if period == before and now - z >= period then
    -- Alignments that take turns would pass over each other's portions for ever: the change is one.
    used, z = used - refill, now
  end
  y = limit - clamped(max(0, used))
  z = z + max(0, floor((now - z) / period)) * period
end
