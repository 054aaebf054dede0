-- redisquota of Istio's Mixer, rolling: a hash with the permits used, the current bucket and a counter of buckets,
-- and in KEYS[3] a sorted set of earlier buckets, `number.permits` scored with their start in nanoseconds. A bucket
-- leaves by its start, so permits count for less than the window, by up to the length of a bucket.
--
-- The set has no time to live, as the others do not renew one: what they add would end with it, and its permits
-- would never come back.
local width, bucket, opens
local ns, current, closed, closed_ns, buckets = 0, 0, 0, 0, 0
limit, width, bucket = numbers('<I7I7I7', wanted, 2)
local fields = call('HMGET', key, 'token', 'bucket.token', 'bucket.timestamp')
y = 0
if fields[1] and fields[2] and fields[3] then
  y, current = decimal('token', fields[1], 0), decimal('bucket.token', fields[2], 0)
  ns = decimal('bucket.timestamp', fields[3], 0, 9007199254740992000)
end
-- The permits of a member of the set.
local PERMITS = '%.(%d+)$'

-- As of now.
local now_ns, cutoff = now * 1000, format('%d', (now - width) * 1000)
local has_expired = call('ZCOUNT', KEYS[3], '0', cutoff) > 0
if now_ns - ns + 1 > bucket * 1000 then
  opens, closed, closed_ns = true, current, ns
  current, ns, buckets = 0, now_ns, decimal('key', call('HGET', key, 'key') or '0', 0)
  if closed > 0 and closed_ns <= now_ns - width * 1000 then
    y, closed = max(0, y - closed), 0
  end
end
if has_expired then
  for _, member in ipairs(call('ZRANGEBYSCORE', KEYS[3], '0', cutoff)) do
    y = max(0, y - (string.match(member, PERMITS) or 0))
  end
end
x = ceil(ns / 1000)
--- roll
free = y < limit and limit - y - (limit - y) % 1 or 0
--- take
y, current = y + p, current + p
--- wait
local left, from = y + p - limit, ns
local later = call('ZRANGEBYSCORE', KEYS[3], '(' .. cutoff, '+inf', 'WITHSCORES')
if closed > 0 then
  later[#later + 1], later[#later + 2] = '0.' .. format('%d', closed), closed_ns
end
for i = 1, #later, 2 do
  left = left - (string.match(later[i], PERMITS) or 0)
  if left <= 0 then
    from = tonumber(later[i + 1])
    break
  end
end
local leaves = ceil(from / 1000) + width
-- Nanoseconds are rounded.
us = leaves - ((leaves - 1 - width) * 1000 >= from and 1 or 0) - now
--- write
if has_expired then
  call('ZREMRANGEBYSCORE', KEYS[3], '0', cutoff)
end
if closed > 0 then
  buckets = buckets + 1
  call('ZADD', KEYS[3], format('%d', closed_ns), format('%d.%d', buckets, closed))
end
if opens then
  call('HSET', key, 'bucket.timestamp', format('%d', ns), 'key', format('%d', buckets))
end
call('HSET', key, 'token', format('%d', y), 'bucket.token', format('%d', current))
-- All permits leave by the start of this bucket. A grant of this lane in the bucket has made the key live for as long.
if opens or at * 1000 <= ns then
  call('PEXPIRE', key, format('%d', width / 1000))
end
ends = now + width
--- functions
function give(mark, _, p)
  local credit = mark == x and min(p, current, y) or 0
  y, current = y - credit, current - credit
  return credit
end
