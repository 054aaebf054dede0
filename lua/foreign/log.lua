-- Logs of other services: a sorted set with an entry for each permit, scored with its time.
--
--   L  the sliding log (Lua): in microseconds. An entry counts until it is older than the interval, and from 10 s
--      ahead of now on
--   M  the window in MULTI (Jedis): in milliseconds. An entry counts until it is as old as the period
--
-- A member is the lane, the number of the call, and the number of the permit.
local kind = string.sub(wanted, 1, 1)
local unit = kind == 'L' and 1 or 1000
local span, seconds, oldest, latest

function configure(text)
  limit, span = numbers(text, '^[LM]1:(%d+),(%d+)$')
  return is_permits(limit) and is_span(span)
end

read_state = function()
  s = {add = 0}
  return read_record()
end

function roll()
  s.t = floor(now / unit)
  s.cutoff = s.t - span / unit
  oldest = kind == 'L' and int(s.cutoff) or '(' .. int(s.cutoff)
  latest = kind == 'L' and int(s.t + 10000000) or '+inf'
  s.n = call('ZCOUNT', key, oldest, latest)
  s.past = call('ZCOUNT', key, oldest, int(s.t))
end

function available()
  return max(0, limit - s.n)
end

function take(p)
  s.n, s.add = s.n + p, s.add + p
end

-- Enough entries must leave, of which those of this call are the last that are not ahead of now.
function wait(p)
  local place, score = s.n + p - limit, s.t
  if place < 1 then
    return 0
  elseif place <= s.past or place > s.past + s.add then
    place = place > s.past and place - s.add or place
    score = call('ZRANGEBYSCORE', key, oldest, latest, 'WITHSCORES', 'LIMIT', place - 1, 1)[2]
  end
  return score * unit + span + (kind == 'L' and 1 or 0) - now
end

function mark()
  return s.t, tonumber(string.sub(lane, 1, 8), 16) or 0
end

-- Removes at once what comes back, so that it is not counted for those who take: it is certain by now.
function give(given, own, p)
  local credit = 0
  if given > s.cutoff or kind == 'L' and given == s.cutoff then
    for _, member in ipairs(call('ZRANGEBYSCORE', key, int(given), int(given))) do
      if credit < p and string.sub(member, 1, 8) == format('%08x', own) then
        credit = credit + call('ZREM', key, member)
      end
    end
  end
  s.n, s.past = s.n - credit, s.past - (given <= s.t and credit or 0)
  return credit
end

write_state = function(fields)
  if s.add > 0 then
    call('ZREMRANGEBYSCORE', key, '-inf', (kind == 'L' and '(' or '') .. int(s.cutoff))
    for i = 0, s.add - 1 do
      call('ZADD', key, int(s.t), lane .. '-' .. number .. ':' .. int(i))
    end
    call('PEXPIRE', key, int((ceil(span / 1000000) + 1) * 1000))
  end
  write_record(fields)
end
