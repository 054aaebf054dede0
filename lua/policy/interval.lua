-- The interval bucket: a portion of permits at the end of each period. Twin: src/policy/interval.rs.
--
-- State: l is the time of the last portion; n permits are left; u counts the permits ever taken, from the time of
-- the first use on.
local refill, period, initial, aligned = 0, 0, 0, nil

-- The time until so many permits have come in portions.
local function gained(n)
  return ceil(n / refill) * period
end

function configure(text)
  limit, refill, period, initial, aligned = numbers(text, '^i1:(%d+),(%d+),(%d+),(%d+),(%d*)$')
  return is_permits(limit) and is_permits(refill) and is_span(period) and initial and initial <= limit and
    (not aligned or aligned < period) and gained(limit) < 3155760000000000
end

-- The time of the last portion by now, if there were always portions.
local function latest()
  return aligned and max(0, now - (now - aligned) % period) or now
end

function roll()
  if not s then
    s = {l = latest(), n = initial, u = now}
  end
  local portions = floor((now - s.l) / period)
  if portions >= 1 then
    s.n = max(s.n, min(limit, s.n + min(portions, ceil(limit / refill)) * refill))
    s.l = s.l + portions * period
  elseif portions < -1 then
    -- The clock went back.
    s.l = latest()
  end
end

function available()
  return min(s.n, limit)
end

function take(p)
  s.n, s.u = s.n - p, s.u + p
end

function wait(p)
  return s.l + gained(p - s.n) - now
end

function mark()
  return s.u, 0
end

function give(given, _, p)
  if given > s.u then
    return 0
  end
  local n = max(s.n, min(s.n + p, limit - (s.u - given)))
  local credit = n - s.n
  s.n = n
  return credit
end

-- As in bucket.lua, a bucket that starts with less than it holds is kept for a while once it is full.
function ttl()
  return s.l + gained(limit - s.n) - now + (initial < limit and gained(limit) + 60000000 or 0)
end

function change(switch)
  local used = limit - s.n
  local scaled = switch()
  s.n = max(0, limit - scaled(used))
  s.l = aligned and latest() or s.l + max(0, floor((now - s.l) / period)) * period
end
