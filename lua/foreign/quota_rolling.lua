-- redisquota of Istio's Mixer, rolling: a hash with the permits used, the current bucket and a counter of buckets,
-- and in KEYS[3] a sorted set of earlier buckets, `number.permits` scored with their start in nanoseconds. A bucket
-- leaves by its start, so permits count for less than the window, by up to the length of a bucket.
--
-- The set has no time to live, as the others do not renew one: what they add would end with it, and its permits
-- would never come back.
local width, bucket

function configure(text)
  limit, width, bucket = numbers(text, '^P1:(%d+),(%d+),(%d+)$')
  return is_permits(limit) and is_span(width) and is_span(bucket)
end

read_state = function()
  local used, current, start, number = unpack(call('HMGET', key, 'token', 'bucket.token', 'bucket.timestamp', 'key'))
  s = {n = 0, current = 0, number = 0}
  if used and current and start then
    s.n, s.current = decimal('token', used, 0), decimal('bucket.token', current, 0)
    s.ns, s.number = tonumber(start), decimal('key', number or '0', 0)
    if not (s.ns and s.ns >= 0 and s.ns < 9007199254740992000) then
      unreadable('bucket.timestamp', start)
    end
  end
  return read_record(KEYS[4])
end

local function permits_of(member)
  return tonumber(string.match(member, '%.(%d+)$') or '') or 0
end

function roll()
  local ns = now * 1000
  s.ns = s.ns or ns
  s.cutoff = (now - width) * 1000
  if ns - s.ns + 1 > bucket * 1000 then
    s.closed, s.closed_ns = s.current, s.ns
    s.current, s.ns = 0, ns
    if s.closed > 0 and s.closed_ns <= s.cutoff then
      s.n, s.closed = max(0, s.n - s.closed), 0
    end
  end
  for _, member in ipairs(call('ZRANGEBYSCORE', KEYS[3], 0, format('%.17g', s.cutoff))) do
    s.n = max(0, s.n - permits_of(member))
  end
end

function available()
  return max(0, floor(limit - s.n))
end

function take(p)
  s.n, s.current = s.n + p, s.current + p
end

function wait(p)
  local left, start = s.n + p - limit, s.ns
  local later = call('ZRANGEBYSCORE', KEYS[3], format('(%.17g', s.cutoff), '+inf', 'WITHSCORES')
  if (s.closed or 0) > 0 then
    later[#later + 1], later[#later + 2] = '0.' .. int(s.closed), s.closed_ns
  end
  for i = 1, #later, 2 do
    left = left - permits_of(later[i])
    if left <= 0 then
      start = tonumber(later[i + 1])
      break
    end
  end
  local leaves = ceil(start / 1000) + width
  -- Nanoseconds are rounded.
  return leaves - ((leaves - 1 - width) * 1000 >= start and 1 or 0) - now
end

function mark()
  return ceil(s.ns / 1000), 0
end

function give(given, _, p)
  local credit = given == mark() and min(p, s.current, s.n) or 0
  s.n, s.current = s.n - credit, s.current - credit
  return credit
end

write_state = function(fields)
  call('ZREMRANGEBYSCORE', KEYS[3], 0, format('%.17g', s.cutoff))
  if (s.closed or 0) > 0 then
    s.number = s.number + 1
    call('ZADD', KEYS[3], format('%.17g', s.closed_ns), int(s.number) .. '.' .. int(s.closed))
  end
  call('HSET', key, 'token', int(s.n), 'bucket.token', int(s.current), 'bucket.timestamp',
    format('%.17g', s.ns), 'key', int(s.number))
  call('PEXPIRE', key, int(width / 1000))
  write_record(fields, KEYS[4], (now + width) * 1000)
end
