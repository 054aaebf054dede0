-- The bucket: token bucket, GCRA and leaky meter. Twin: src/policy/bucket.rs.
--
-- State: x counts the permits ever taken, from the time of the first use on; the bucket is full again at y + z / r.
local initial = 0
layout, size, has_excess = '<I6I6I7I7I4', 30, true
--- parameters
if #text == 17 or #text == 21 then
  limit, r, q = numbers('<I4I4I7', text, 3)
  initial = #text == 21 and numbers('<I4', text, 18) or limit
  is_valid = r > 0 and q > 0 and initial <= limit
end
--- roll
if not x then
  x, y, z = now, plus(now, 0, limit - initial)
elseif y < now then
  if tail ~= '' then
    -- What a full bucket gains counts for the permits beyond its limit, in whole microseconds each.
    local excess = numbers('<I4', tail) - floor((now - y - (z > 0 and 1 or 0)) / ceil(q / r))
    tail = excess > 0 and pack('<I4', excess) or ''
  end
  y, z = now, 0
end
free = limit - worth(now, 0, y, z, limit)
if free < 0 then
  -- The clock went back.
  y, z = plus(now, 0, limit)
  free, is_behind = 0, true
end
--- take
x, y, z = x + p, plus(y, z, p)
-- A bucket that starts with less than it holds is kept for a while once it is full: it would be emptied by expiring.
ends = y + 1 + (initial < limit and plus(0, 0, limit) + 60000000 or 0)
if tail ~= '' then
  ends = ends + min(3155760000000000, numbers('<I4', tail) * ceil(q / r))
end
--- wait
local t, f = plus(y, z, p - limit)
us = t + (f > 0 and 1 or 0) - now
--- functions
-- Without the grant the bucket would be full again no later than this: the grant's own time off, or what others
-- have taken since on top of now.
function give(mark, _, p)
  if mark > x then
    return 0
  end
  -- Under a lower capacity than the grant's, more than that would change nothing.
  p = min(p, limit)
  local t, f = plus(now, 0, min(x - mark, limit))
  if t > y or t == y and f > z then
    t, f = y, z
  end
  local own_t, own_f = plus(y, z, -p)
  if own_t > t or own_t == t and own_f > f then
    t, f = own_t, own_f
  end
  local credit = min(p, worth(t, f, y, z, p))
  y, z = t, f
  return credit
end

function change(switch)
  local before, old_r, old_q = limit - free, r, q
  local _, clamped = switch()
  local used = clamped(before)
  if r == old_r and q == old_q then
    -- The fraction of a permit that was gained since stays, however often this happens.
    y, z = plus(y, z, used - before)
  else
    y, z = plus(now, 0, used)
  end
end
