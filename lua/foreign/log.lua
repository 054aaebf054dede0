-- Logs of other services: a sorted set with an entry for each permit, scored with its time.
--
--   L  the sliding log (Lua): in microseconds. An entry counts until it is older than the interval, and from 10 s
--      ahead of now on
--   M  the window in MULTI (Jedis): in milliseconds. An entry counts until it is as old as the period
--
-- A member is the lane, the number of the call, and the number of the permit.
local kind = string.sub(wanted, 1, 1)
local unit = kind == 'L' and 1 or 1000
local span, added = 0, 0
limit, span = numbers('<I7I7', wanted, 2)
-- The mark is the time and the beginning of the lane.
x, y, has_fraction = (now - now % unit) / unit, lane ~= '' and numbers('<I6', lane, 2) or 0, true
local cutoff = format('%d', x - span / unit)
local oldest, expired = kind == 'L' and cutoff or '(' .. cutoff, kind == 'L' and '(' .. cutoff or cutoff
local latest = kind == 'L' and format('%d', x + 10000000) or '+inf'
local counted = call('ZCOUNT', key, oldest, latest)
--- roll
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
  local score, member = format('%d', x), format('%s-%d', string.sub(lane, 2), number)
  call('ZADD', key, score, member)
  for i = 1, added - 1 do
    call('ZADD', key, score, format('%s:%d', member, i))
  end
  -- What has expired is not counted, so it can be removed now and then.
  if at < now - now % (span / 8) then
    call('ZREMRANGEBYSCORE', key, '-inf', expired)
  end
  call('PEXPIRE', key, format('%d', (ceil(span / 1000000) + 1) * 1000))
end
--- functions
-- Removes at once what comes back, so that it is not counted for those who take: it is certain by now.
function give(mark, own, p)
  local credit, cutoff = 0, x - span / unit
  if mark > cutoff or kind == 'L' and mark == cutoff then
    local at = format('%d', mark)
    for _, member in ipairs(call('ZRANGEBYSCORE', key, at, at)) do
      if credit < p and string.sub(member, 1, 6) == pack('<I6', own) then
        credit = credit + call('ZREM', key, member)
      end
    end
  end
  counted = counted - credit
  return credit
end
