-- The sliding counter: the window before counts by the part of it that still overlaps. Twin: src/policy/sliding.rs.
--
-- State: s is the start of the current window; a permits were used in the one before, n in this one. Parts of a
-- window are counted in ticks, so that limit times ticks stays below 2^52.
local width, tick, ticks = 0, 1, 0

function configure(text)
  limit, width = numbers(text, '^s1:(%d+),(%d+)$')
  if not (is_permits(limit) and is_span(width)) then
    return false
  end
  tick = 1
  while limit * (width / tick) >= 4503599627370496 do
    tick = tick * 10
  end
  ticks = width / tick
  return ticks % 1 == 0
end

-- The ticks of this window that are over.
local function over()
  return max(0, floor((now - s.s) / tick))
end

function roll()
  local start = now - now % width
  if not s or start - s.s > width then
    s = {s = start, a = 0, n = 0}
  elseif start > s.s then
    s = {s = start, a = s.n, n = 0}
  elseif s.s - now > width then
    -- The clock went back.
    s = {s = start, a = 0, n = s.a + s.n}
  end
end

function available()
  return max(0, floor((limit * ticks - s.a * (ticks - over())) / ticks) - s.n)
end

function take(p)
  s.n = s.n + p
end

function wait(p)
  local room = limit - s.n - p
  if room >= 0 then
    return s.s + (ticks - floor(room * ticks / s.a)) * tick - now
  end
  return s.s + width + max(0, ticks - floor((limit - p) * ticks / s.n)) * tick - now
end

function mark()
  return s.s, 0
end

function give(given, _, p)
  local name = given == s.s and 'n' or given == s.s - width and 'a'
  local credit = name and min(p, s[name]) or 0
  if credit > 0 then
    s[name] = s[name] - credit
  end
  return credit
end

function ttl()
  return s.s + 2 * width - now
end

function change(switch)
  local before, used = width, limit - available()
  local scaled = switch()
  if width == before then
    -- Exact up to here; more than twice the limit can be no fuller.
    local most = floor(9007199254740991 / ticks)
    s.a, s.n = min(most, scaled(s.a)), min(most, scaled(s.n))
  else
    s = {s = now - now % width, a = 0, n = scaled(used)}
  end
end
