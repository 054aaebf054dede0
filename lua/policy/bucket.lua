-- The bucket: token bucket, GCRA and leaky meter. Twin: src/policy/bucket.rs.
--
-- State: the bucket is full again at t + f / r; u counts the permits ever taken, from the time of the first use on.
local initial = 0

function configure(text)
  local capacity, permits, every, start = numbers(text, '^b1:(%d+),(%d+),(%d+),(%d+)$')
  if is_permits(capacity) and set_pace(permits, every, capacity) and start and start <= capacity then
    limit, initial = capacity, start
    return true
  end
end

check = function()
  return s.f >= r and 'f'
end

function roll()
  if not s then
    s = {u = now}
    s.t, s.f = plus(now, 0, limit - initial)
    return
  end
  local t, f = plus(now, 0, limit)
  if s.t < now then
    s.t, s.f = now, 0
  elseif is_after(s.t, s.f, t, f) then
    -- The clock went back.
    s.t, s.f = t, f
  end
end

function available()
  local t, f = plus(now, 0, limit)
  return fitting(s.t, s.f, t, f, limit)
end

function take(p)
  s.t, s.f = plus(s.t, s.f, p)
  s.u = s.u + p
end

function wait(p)
  local t, f = plus(s.t, s.f, p - limit)
  return t + (f > 0 and 1 or 0) - now
end

function mark()
  return s.u, 0
end

-- Without the grant the bucket would be full again no later than this: the grant's own time off, or what others
-- have taken since on top of now.
function give(given, _, p)
  if given > s.u then
    return 0
  end
  -- Under a lower capacity than the grant's, more than that would change nothing.
  p = min(p, limit)
  local t, f = plus(now, 0, min(s.u - given, limit))
  if is_after(t, f, s.t, s.f) then
    t, f = s.t, s.f
  end
  local own_t, own_f = plus(s.t, s.f, -p)
  if is_after(own_t, own_f, t, f) then
    t, f = own_t, own_f
  end
  local credit = fitting(t, f, s.t, s.f, p)
  local to_t, to_f = plus(t, f, credit)
  if is_after(s.t, s.f, to_t, to_f) then
    credit = min(p, credit + 1)
  end
  s.t, s.f = t, f
  return credit
end

-- A bucket that starts with less than it holds is kept for a while once it is full: it would be emptied by expiring.
function ttl()
  return s.t + 1 - now + (initial < limit and plus(0, 0, limit) + 60000000 or 0)
end

function change(switch)
  local used = limit - available()
  local scaled = switch()
  s.t, s.f = plus(now, 0, min(scaled(used), limit))
end
