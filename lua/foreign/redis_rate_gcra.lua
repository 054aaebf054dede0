-- redis_rate 8 to 10 (Go): a string with the time at which the bucket is full again, in seconds since 2017.
--
-- The others grant half an interval early, which this does not. Times are rounded up to microseconds.
local EPOCH = 1483228800000000
limit, r, q = numbers('<I7I7I7', wanted, 2)
local text = call('GET', key)
-- A double of so many seconds is off by less than a twentieth of a microsecond.
x = text and ceil(decimal('value', text, -1000000000) * 1000000 - 0.05) + EPOCH or 0

-- The first microsecond that is not before k permits later.
local function after(k)
  local t, f = plus(x, 0, k)
  return t + (f > 0 and 1 or 0)
end

--- roll
x = max(x, now)
free = max(0, limit - worth(now, 0, x, 0, limit))
--- take
x = after(p)
--- wait
us = after(p - limit) - now
--- write
if x > now then
  local us = x - EPOCH
  local text = format('%d.%06d', floor(us / 1000000), us % 1000000)
  call('SET', key, text, 'EX', format('%d', ceil((x - now) / 1000000)))
else
  call('DEL', key)
end
--- functions
function give(_, _, p)
  local to = max(now, after(-p))
  local credit = min(p, worth(to, 0, x, 0, p))
  x = to
  return credit
end
