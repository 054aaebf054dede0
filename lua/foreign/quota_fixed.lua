-- redisquota of Istio's Mixer, fixed: a hash with the permits used and the end of the window in nanoseconds, which
-- are rounded to 256 as they exceed 2^53. Here a window opens with a grant, not with a denial, by the server's clock.
local width

function configure(text)
  limit, width = numbers(text, '^Q1:(%d+),(%d+)$')
  return is_permits(limit) and is_span(width)
end

read_state = function()
  local used, ends = unpack(call('HMGET', key, 'token', 'expire'))
  s = {n = 0}
  if used and ends then
    s.n, s.ns = decimal('token', used, 0), tonumber(ends)
    if not (s.ns and s.ns >= 0 and s.ns < 9007199254740992000) then
      unreadable('expire', ends)
    end
  end
  return read_record(KEYS[3])
end

function roll()
  if s.ns and now >= ceil(s.ns / 1000) then
    s.n, s.ns = 0, nil
  end
end

function available()
  return max(0, floor(limit - s.n))
end

function take(p)
  if not s.ns then
    s.ns, s.opens = (now + width) * 1000, true
  end
  s.n = s.n + p
end

function wait()
  return s.ns and ceil(s.ns / 1000) - now or 0
end

function mark()
  return s.ns and ceil(s.ns / 1000) or 0, 0
end

function give(given, _, p)
  local credit = given == mark() and min(p, s.n) or 0
  s.n = s.n - credit
  return credit
end

write_state = function(fields)
  if s.ns then
    call('HSET', key, 'token', int(s.n), 'expire', format('%.17g', s.ns))
    if s.opens then
      call('PEXPIRE', key, int(width / 1000))
    end
  end
  write_record(fields, KEYS[3], s.ns)
end
