-- redis_rate 8 to 10 (Go): a string with the time at which the bucket is full again, in seconds since 2017.
--
-- The others grant half an interval early, which this does not. Times are rounded up to microseconds.
local EPOCH = 1483228800000000

function configure(text)
  local burst, permits, every = numbers(text, '^R1:(%d+),(%d+),(%d+)$')
  limit = burst
  return is_permits(burst) and set_pace(permits, every, burst)
end

read_state = function()
  local text = call('GET', key)
  s = {t = 0}
  if text then
    -- A double of so many seconds is off by less than a twentieth of a microsecond.
    s.t = ceil(decimal('value', text, -1000000000) * 1000000 - 0.05) + EPOCH
  end
  return read_record()
end

function roll()
  s.t = max(s.t, now)
end

function available()
  local t, f = plus(now, 0, limit)
  return fitting(s.t, 0, t, f, limit)
end

function take(p)
  local t, f = plus(s.t, 0, p)
  s.t = t + (f > 0 and 1 or 0)
end

function wait(p)
  local t, f = plus(s.t, 0, p - limit)
  return t + (f > 0 and 1 or 0) - now
end

function mark()
  return s.t, 0
end

function give(_, _, p)
  local t, f = plus(s.t, 0, -p)
  local to = max(now, t + (f > 0 and 1 or 0))
  local credit = fitting(to, 0, s.t, 0, p)
  if is_after(s.t, 0, plus(to, 0, credit)) then
    credit = min(p, credit + 1)
  end
  s.t = to
  return credit
end

write_state = function(fields)
  if s.t > now then
    local us = s.t - EPOCH
    local text = format('%.0f.%06.0f', floor(us / 1000000), us % 1000000)
    call('SET', key, text, 'EX', int(ceil((s.t - now) / 1000000)))
  else
    call('DEL', key)
  end
  write_record(fields)
end
