-- redisquota of Istio's Mixer, fixed: a hash with the permits used and the end of the window in nanoseconds, which
-- are rounded to 256 as they exceed 2^53. Here a window opens with a grant, not with a denial, by the server's clock.
local width, ns, opens
limit, width = numbers('<I7I7', wanted, 2)
local used, expire = unpack(call('HMGET', key, 'token', 'expire'))
x, y = 0, 0
if used and expire then
  y, ns = decimal('token', used, 0), decimal('expire', expire, 0, 9007199254740992000)
end
--- roll
if ns and now >= ceil(ns / 1000) then
  y, ns = 0, nil
end
x = ns and ceil(ns / 1000) or 0
free = max(0, floor(limit - y))
--- take
if not ns and p > 0 then
  ns, opens = (now + width) * 1000, true
  x = ceil(ns / 1000)
end
y = y + p
--- wait
us = ns and x - now or 0
--- write
if ns then
  call('HSET', key, 'token', format('%d', y))
  if opens then
    call('HSET', key, 'expire', format('%d', ns))
    call('PEXPIRE', key, format('%d', width / 1000))
  end
end
ends = x
--- functions
function give(mark, _, p)
  local credit = mark == x and min(p, y) or 0
  y = y - credit
  return credit
end
