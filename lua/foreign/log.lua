-- Logs of other services: a sorted set with an entry for each permit, scored with its time.
--
--   L  the sliding log (Lua): in microseconds. An entry counts until it is older than the interval, and from 10 s
--      ahead of now on
--   M  the window in MULTI (Jedis): in milliseconds. An entry counts until it is as old as the period
--
-- A member is the lane, the number of the call, and the number of the permit.
local unit = kind == 'L' and 1 or 1000
local span, cutoff, oldest, latest, counted
local added = 0
limit, span = numbers('<I7I7', wanted, 2)
-- The mark is the time and the beginning of the lane.
x, y, has_fraction = floor(now / unit), tonumber(string.sub(lane, 2, 9), 16) or 0, true
--- roll
if not counted then
  cutoff = x - span / unit
  oldest = (kind == 'L' and '' or '(') .. format('%d', cutoff)
  latest = kind == 'L' and format('%d', x + 10000000) or '+inf'
  counted = call('ZCOUNT', key, oldest, latest)
end
free = max(0, limit - counted)
--- take
counted, added = counted + p, added + p
--- wait
-- Enough entries must leave, of which those of this call are the last that are not ahead of now.
local place, score = counted + p - limit, x
if place < 1 then
  us = 0
else
  local past = call('ZCOUNT', key, oldest, format('%d', x))
  if place <= past or place > past + added then
    place = place > past and place - added or place
    score = call('ZRANGEBYSCORE', key, oldest, latest, 'WITHSCORES', 'LIMIT', place - 1, 1)[2]
  end
  us = score * unit + span + (kind == 'L' and 1 or 0) - now
end
--- write
if added > 0 then
  call('ZREMRANGEBYSCORE', key, '-inf', (kind == 'L' and '(' or '') .. format('%d', cutoff))
  for i = 0, added - 1 do
    call('ZADD', key, format('%d', x), format('%s-%d:%d', string.sub(lane, 2), number, i))
  end
  call('PEXPIRE', key, format('%d', (ceil(span / 1000000) + 1) * 1000))
end
--- functions
-- Removes at once what comes back, so that it is not counted for those who take: it is certain by now.
function give(mark, own, p)
  local credit = 0
  if mark > cutoff or kind == 'L' and mark == cutoff then
    local at = format('%d', mark)
    for _, member in ipairs(call('ZRANGEBYSCORE', key, at, at)) do
      if credit < p and string.sub(member, 1, 8) == format('%08x', own) then
        credit = credit + call('ZREM', key, member)
      end
    end
  end
  counted = counted - credit
  return credit
end
