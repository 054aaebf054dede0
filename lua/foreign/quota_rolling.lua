-- redisquota of Istio's Mixer, rolling: a hash with the permits used, the current bucket and a counter of buckets,
-- and in KEYS[3] a sorted set of earlier buckets, `number.permits` scored with their start in nanoseconds. A bucket
-- leaves by its start, so permits count for less than the window, by up to the length of a bucket.
--
-- The set has no time to live, as the others do not renew one: what they add would end with it, and its permits
-- would never come back.
local width, bucket, ns, cutoff, closed_ns
local current, closed, buckets, is_rolled = 0, 0, 0, false
limit, width, bucket = numbers('<I7I7I7', wanted, 2)
local used, in_bucket, began, named = unpack(call('HMGET', key, 'token', 'bucket.token', 'bucket.timestamp', 'key'))
x, y = 0, 0
if used and in_bucket and began then
  y, current = decimal('token', used, 0), decimal('bucket.token', in_bucket, 0)
  ns, buckets = tonumber(began), decimal('key', named or '0', 0)
  if not (ns and ns >= 0 and ns < 9007199254740992000) then
    unreadable('bucket.timestamp', began)
  end
end

local function permits_of(member)
  return tonumber(string.match(member, '%.(%d+)$') or '') or 0
end
--- roll
if not is_rolled then
  is_rolled = true
  local now_ns = now * 1000
  ns = ns or now_ns
  cutoff = (now - width) * 1000
  if now_ns - ns + 1 > bucket * 1000 then
    closed, closed_ns = current, ns
    current, ns = 0, now_ns
    if closed > 0 and closed_ns <= cutoff then
      y, closed = max(0, y - closed), 0
    end
  end
  for _, member in ipairs(call('ZRANGEBYSCORE', KEYS[3], 0, format('%.17g', cutoff))) do
    y = max(0, y - permits_of(member))
  end
end
x = ceil(ns / 1000)
free = max(0, floor(limit - y))
--- take
y, current = y + p, current + p
--- wait
local left, from = y + p - limit, ns
local later = call('ZRANGEBYSCORE', KEYS[3], format('(%.17g', cutoff), '+inf', 'WITHSCORES')
if closed > 0 then
  later[#later + 1], later[#later + 2] = '0.' .. format('%d', closed), closed_ns
end
for i = 1, #later, 2 do
  left = left - permits_of(later[i])
  if left <= 0 then
    from = tonumber(later[i + 1])
    break
  end
end
local leaves = ceil(from / 1000) + width
-- Nanoseconds are rounded.
us = leaves - ((leaves - 1 - width) * 1000 >= from and 1 or 0) - now
--- write
call('ZREMRANGEBYSCORE', KEYS[3], 0, format('%.17g', cutoff))
if closed > 0 then
  buckets = buckets + 1
  call('ZADD', KEYS[3], format('%.17g', closed_ns), format('%d.%d', buckets, closed))
end
call('HSET', key, 'token', format('%d', y), 'bucket.token', format('%d', current), 'bucket.timestamp',
  format('%.17g', ns), 'key', format('%d', buckets))
call('PEXPIRE', key, format('%d', width / 1000))
ends = now + width
--- functions
function give(mark, _, p)
  local credit = mark == x and min(p, current, y) or 0
  y, current = y - credit, current - credit
  return credit
end
