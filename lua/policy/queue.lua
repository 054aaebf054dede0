-- The queue: permits follow each other at a pace, and each request is granted from a time on.
-- Twin: src/policy/queue.rs.
--
-- State: the next permit is free at t + f / r; l is the time of the last grant.
local max_delay, slack = 0, 0

function configure(text)
  local permits, every
  permits, every, max_delay, slack, limit = numbers(text, '^q1:(%d+),(%d+),(%d+),(%d+),(%d+)$')
  return max_delay and max_delay <= 315576000000000 and is_permits(limit) and slack and slack <= limit and
    set_pace(permits, every, limit)
end

check = function()
  return s.f >= r and 'f'
end

function roll()
  if not s then
    s = {t = now, f = 0, l = now}
  elseif now < s.l then
    -- The clock went back: delays stay what they were.
    s.t, s.l = max(0, s.t - (s.l - now)), now
  end
end

-- The start of the next request that follows k permits, as of a time.
local function start_after(t, f, k, from)
  t, f = plus(t, f, k - slack)
  return max(from, t + (f > 0 and 1 or 0))
end

-- A request of any size starts now or later.
function available()
  return start_after(s.t, s.f, 0, now) > now and 0 or limit
end

-- Permits that start now.
function take(p)
  if s.t < now then
    s.t, s.f = now, 0
  end
  s.t, s.f = plus(s.t, s.f, p)
  s.l = now
end

function wait()
  return start_after(s.t, s.f, 0, now) - now
end

function mark()
  return s.t, s.f
end

-- Only the last reservation, and only before its time: later ones keep theirs.
function give(given, fraction, p)
  local t, f = plus(s.t, s.f, -p)
  if given ~= s.t or fraction ~= s.f or p > limit or t < now then
    return 0
  end
  s.t, s.f = t, f
  return p
end

function ttl()
  return s.t + 1 - now
end

function change(switch)
  switch()
  s.t, s.f = s.t + (s.f > 0 and 1 or 0), 0
end

-- Each request starts behind those before it. Of a call that was decided before, the reservations are those of
-- that time, and `most` permits are granted.
decide = function(most, is_replay)
  local t, f, from = s.t, s.f, now
  if is_replay then
    from = at
    t, f = plus(given, given_f, -most)
  elseif t < now then
    t, f = now, 0
  end
  local granted, sum, exact, us = 0, 0, 0, 0
  for i = 1, #requests, 15 do
    local p, longest, count = struct.unpack('<I4I7I4', requests, i)
    longest = longest * 1000
    local allowed = min(longest, max_delay)
    while count > 0 and p > limit do
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
      answer(1, 8, start)
      reply[#reply + 1], reply[#reply + 2] = t, f
    end
    while count > 0 do
      local is_exact = sum == 0 or sum < limit and exact < EXACT_WAITS
      if is_exact then
        exact = exact + (sum > 0 and 1 or 0)
        local end_t, end_f = t, f
        if is_replay then
          end_t, end_f = s.t, s.f
        end
        us = start_after(end_t, end_f, min(sum, limit), now) - now
      end
      local at_least, n = is_exact and sum <= limit and 0 or 1, count
      if longest > max_delay and us <= longest and not (is_replay and granted < most) then
        n = (sum < limit and exact < EXACT_WAITS) and 1 or count
        sum = sum + n * p
        answer(n, 3 + at_least, max(1, us - max_delay))
      else
        answer(n, 1 + at_least, max(1, us - allowed))
      end
      count = count - n
    end
  end
  if granted > 0 and not is_replay then
    s.t, s.f, s.l = t, f, now
  end
  return granted
end
