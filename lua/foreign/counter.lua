-- Counters of other services: a string with the permits used, which ends with its key.
--
--   W  redis_rate up to 7 (Go) and Envoy: a key for each window. The client names the key of the window whose start
--      and end are in `bounds`, and is told the time if now is not in it
--   S  SECONDS and MINUTES: each grant prolongs the key's life
--   C  org/path (PHP): the first call begins the key's life. Limit and life are in the hash KEYS[3]; without it
--      everything is allowed
local kind = string.sub(wanted, 1, 1)
local life, left, end_us, added, taken = 0, -2, nil, 0, 0
if kind == 'C' then
  local expire, limit_req = unpack(call('HMGET', KEYS[3], 'expire', 'limitReq'))
  limit = 4294967295
  if expire or limit_req then
    limit = min(limit, floor(decimal('limitReq', limit_req, 0)))
    -- The others fail where it is no integer, and count nothing where it is not positive.
    life = decimal('expire', expire, -4294967296)
    if life % 1 ~= 0 then
      decimal('expire', expire, 0, 0)
    elseif life <= 0 then
      limit = 4294967295
    end
  end
else
  limit, life = numbers('<I7I7', wanted, 2)
end
if kind == 'W' then
  local start
  start, end_us = numbers('<I7I7', bounds)
  if action ~= 'give' and not (now >= start and now < end_us) then
    failure = {-10, now, wanted}
  end
end
local is_free = kind == 'C' and life <= 0

local text = call('GET', key)
y = text and #text <= 16 and not string.find(text, '%D') and tonumber(text) or not text and 0
if not y or y >= 9007199254740992 then
  y = decimal('value', text, 0, 0)
elseif text and kind ~= 'W' then
  left = call('PTTL', key)
end
-- The time of one without a time to live begins with this call, even if it is denied.
x = left ~= -1 and 0 or nil
-- A key has ended a millisecond after its time.
local next_ms = (now - now % 1000) / 1000 + 1
--- roll
end_us = end_us or (next_ms + (left >= 0 and left or life * 1000)) * 1000
x = is_free and 0 or end_us
free = is_free and limit or max(0, limit - y)
--- take
y, added, taken = y + p, added + p, taken + p
if kind == 'S' and p > 0 then
  end_us = (next_ms + life * 1000) * 1000
  x = end_us
end
--- wait
us = end_us - now
--- write
if is_free then
  own = nil
elseif kind == 'C' and y == 0 then
  -- The others give a counter its time to live when it becomes 1.
  call('DEL', key)
else
  if added ~= 0 then
    call('INCRBY', key, format('%d', added))
  end
  if taken > 0 and kind ~= 'C' or left < 0 and kind ~= 'W' then
    call('PEXPIRE', key, format('%d', life * 1000))
  end
end
--- functions
-- Times to live are cut to milliseconds, at different moments.
function give(mark, _, p)
  local is_same = mark == end_us and now < end_us
  if kind == 'S' then
    is_same = now + 2000 < mark
  elseif kind == 'C' then
    is_same = not is_free and math.abs(mark - end_us) <= 2000
  end
  local credit = is_same and min(p, y) or 0
  y, added = y - credit, added - credit
  return credit
end
