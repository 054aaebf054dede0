-- The queue: permits follow each other at a pace, and each request is granted from a time on.
-- Twin: src/policy/queue.rs.
--
-- State: the next permit is free at x + y / r; z is the time of the last grant.
local slack = 0
has_fraction = true
--- parameters
if #text == 31 then
  limit, r, q, max_delay, slack = numbers('<I4I7I7I7I4', text, 3)
  is_valid = r > 0 and q > 0 and slack <= limit
end
--- roll
if not x then
  x, y, z = now, 0, now
elseif now < z then
  -- The clock went back: delays stay what they were.
  x, z = max(0, x - (z - now)), now
end
-- A request of any size starts now or later.
local t, f = plus(x, y, -slack)
start = max(now, t + (f > 0 and 1 or 0))
free = start > now and 0 or limit
--- take
if p > 0 then
  z = now
  x, y = max(x, now), x < now and 0 or y
  x, y = plus(x, y, p)
end
local t, f = plus(x, y, -slack)
start = max(now, t + (f > 0 and 1 or 0))
free = start > now and 0 or limit
ends = x + 1
--- wait
us = start - now
--- functions
-- The start of the next request that follows k permits, as of a time.
local function start_after(t, f, k, from)
  t, f = plus(t, f, k - slack)
  return max(from, t + (f > 0 and 1 or 0))
end

-- Only the last reservation, and only before its time: later ones keep theirs.
function give(mark, fraction, p)
  local t, f = plus(x, y, -p)
  if mark ~= x or fraction ~= y or p > limit or t < now then
    return 0
  end
  x, y = t, f
  return p
end

function change(switch)
  switch()
  x, y = x + (y > 0 and 1 or 0), 0
end

-- Each request starts behind those before it. Of a call that was decided before, the reservations are those of
-- that time, and as many permits are granted.
function decide(answer, it)
  local is_replay, most, t, f, from = it.is_replay, it.total, x, y, now
  if is_replay then
    from = at
    t, f = plus(it.given, it.given_f, -most)
  elseif t < now then
    t, f = now, 0
  end
  local granted, sum, exact, us = 0, 0, 0, 0
  for i = 8, #requests, 15 do
    local p, longest, count = numbers('<I4I7I4', requests, i)
    longest = longest * 1000
    local allowed = min(longest, max_delay)
    if p > limit then
      answer(count, 5, 0)
      count = 0
    end
    while count > 0 and sum == 0 and (not is_replay or p <= most - granted) do
      local start = start_after(t, f, 0, from)
      if start - from > allowed then
        break
      end
      t, f = plus(t, f, p)
      granted, count = granted + p, count - 1
      answer(1, 8, start, t, f)
    end
    while count > 0 do
      local is_exact = sum == 0 or sum < limit and exact < 16
      if is_exact then
        exact = exact + (sum > 0 and 1 or 0)
        local end_t, end_f = t, f
        if is_replay then
          end_t, end_f = x, y
        end
        us = start_after(end_t, end_f, min(sum, limit), now) - now
      end
      local at_least, n = is_exact and sum <= limit and 0 or 1, count
      if longest > max_delay and us <= longest and not (is_replay and granted < most) then
        n = (sum < limit and exact < 16) and 1 or count
        sum = sum + n * p
        answer(n, 3 + at_least, max(1, us - max_delay))
      else
        answer(n, 1 + at_least, max(1, us - allowed))
      end
      count = count - n
    end
  end
  if granted > 0 and not is_replay then
    x, y, z = t, f, now
    roll()
  end
  return granted
end
