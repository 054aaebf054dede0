-- Counters of other services: a string with the permits used, which ends with its key.
--
--   W  redis_rate up to 7 (Go) and Envoy: a key for each window. The client names the key of the window whose start
--      and end are in `bounds`, and is told the time if now is not in it
--   S  SECONDS and MINUTES: each grant prolongs the key's life
--   C  org/path (PHP): the first call begins the key's life. Limit and life are in the hash KEYS[3]; without it
--      everything is allowed
local kind, found, life, ends = string.sub(wanted, 1, 1), nil, 0, nil

function configure(text)
  if kind == 'C' then
    local expire, limit_req = unpack(call('HMGET', KEYS[3], 'expire', 'limitReq'))
    limit, life = 4294967295, 0
    if expire or limit_req then
      limit = min(limit, floor(decimal('limitReq', limit_req, 0)))
      -- The others fail where it is no integer, and count nothing where it is not positive.
      life = decimal('expire', expire, -4294967296)
      if life % 1 ~= 0 then
        unreadable('expire', expire)
      elseif life <= 0 then
        limit = 4294967295
      end
    end
    return text == 'C1'
  end
  limit, life = numbers(text, '^[WS]1:(%d+),(%d+)$')
  if kind == 'W' then
    local start
    start, ends = numbers(bounds, '^(%-?%d+) (%-?%d+)$')
    if action ~= 'give' and not (now >= start and now < ends) then
      problem = problem or {-10, now, text}
    end
  end
  return is_permits(limit) and life and life > 0
end

read_state = function()
  local text = call('GET', key)
  found = {n = text and whole(text) or 0, add = 0, life = -2}
  if text and not whole(text) then
    unreadable('value', text)
  elseif text and kind ~= 'W' then
    found.life = call('PTTL', key)
  end
  -- The time of one without a time to live begins with this call, even if it is denied.
  if found.life ~= -1 then
    s = found
  end
  return read_record()
end

-- When a key has ended that ends in so many milliseconds: one later.
local function end_in(ms)
  return (floor(now / 1000) + ms + 1) * 1000
end

function roll()
  s = found
  if kind == 'W' then
    s.e = ends
  else
    s.e = end_in(s.life >= 0 and s.life or life * 1000)
  end
  s.is_free = kind == 'C' and life <= 0
end

function available()
  return s.is_free and limit or max(0, limit - s.n)
end

function take(p)
  s.n, s.add = s.n + p, s.add + p
  if kind == 'S' then
    s.e = end_in(life * 1000)
  end
end

function wait()
  return s.e - now
end

function mark()
  return s.is_free and 0 or s.e, 0
end

-- Times to live are cut to milliseconds, at different moments.
function give(given, _, p)
  local is_same = given == s.e and now < s.e
  if kind == 'S' then
    is_same = now + 2000 < given
  elseif kind == 'C' then
    is_same = not s.is_free and math.abs(given - s.e) <= 2000
  end
  local credit = is_same and min(p, s.n) or 0
  s.n, s.add = s.n - credit, s.add - credit
  return credit
end

write_state = function(fields)
  if s.is_free then
    return
  end
  if kind == 'C' and s.n == 0 then
    -- The others give a counter its time to live when it becomes 1.
    call('DEL', key)
  else
    if s.add ~= 0 then
      call('INCRBY', key, int(s.add))
    end
    if s.add > 0 and kind ~= 'C' or s.life < 0 and kind ~= 'W' then
      call('PEXPIRE', key, int(life * 1000))
    end
  end
  write_record(fields)
end
