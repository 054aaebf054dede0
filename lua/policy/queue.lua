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
  version = (r % 2^32 * 1000003 + q) % 2^32
  version = ((version * 1000003 + max_delay) % 2^32 * 1000003 + limit) % 2^32
  version = (version * 1000003 + slack) % 2^32
end
--- roll
if not x then
  x, y, z = now, 0, now
elseif now < z then
  -- The clock went back: delays stay what they were.
  x, z, is_behind = max(0, x - (z - now)), now, true
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
-- As of now: what is reserved, and behind that another century, would pass 2^53.
local t, f = plus(max(0, x - now), x < now and 0 or y, behind - slack)
us = max(0, t + (f > 0 and 1 or 0))
--- functions
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
  local old_r, old_q = r, q
  switch()
  if r ~= old_r or q ~= old_q then
    -- What was granted before took another time: its marks are those of nothing.
    x, y = x + 1, 0
  end
end

-- Grants as many of equal requests as start no later than allowed, one behind the other, and returns how many. What a call
-- that was decided before was granted is granted again, as of that time.
function schedule(it, answer, p, count, allowed)
  local t, f, from = x, y, now
  if it.is_replay then
    t, f = plus(it.given, it.given_f, -it.rest)
    from, count = at, min(count, floor(it.rest / p))
  elseif t < now then
    t, f = now, 0
  end
  -- Of more than the limit at once, times would not be exact.
  local n, most = 0, min(count, floor(limit / p))
  local try = most
  while n < most do
    local last_t, last_f = plus(t, f, (try - 1) * p - slack)
    if last_t + (last_f > 0 and 1 or 0) - from <= allowed then
      n = try
    else
      most = try - 1
    end
    try = ceil((n + most) / 2)
  end
  if it.is_replay then
    it.rest = it.rest - n * p
  elseif n > 0 then
    take(n * p)
  end
  answer(n, 8, t, f, from, p, r, q, slack)
  return n
end
