-- Sets the time to live of all keys, each by its own condition.
-- Twin: src/store/calls/keys.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- ARGV   1 'in' or 'at'
--        2 ms from now, or epoch ms
--        3 '' or the condition: nx, xx, gt, lt
-- reply  {0, 1 if that of any key changed}
--
-- The script decides the conditions because servers before 7.0 have none.
local call = redis.call
local command, condition = 'PEXPIRE', ARGV[3]
if ARGV[1] == 'at' then
  command = 'PEXPIREAT'
end

local function server_ms()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- The key's remaining time to live, and the one by ARGV[2], at one moment: before 7.2 the clock goes on during
-- a script, so that an unchanged time would seem to be later. The tries are limited, because a server that shows
-- long keys to a MONITOR never makes three commands within a millisecond.
local function lives(key)
  if command == 'PEXPIRE' then
    return call('PTTL', key), ARGV[2] - 0
  end
  local now, left
  for _ = 1, 9 do
    now, left = server_ms(), call('PTTL', key)
    if server_ms() == now then
      break
    end
  end
  return left, ARGV[2] - now
end

local changed = 0
for i = 1, #KEYS do
  local left, ms = lives(KEYS[i])
  local endless = left == -1
  if left >= -1 and (condition == '' or
      condition == 'nx' and endless or
      condition == 'xx' and not endless or
      condition == 'gt' and not endless and ms > left or
      condition == 'lt' and (endless or ms < left)) then
    changed = math.max(changed, call(command, KEYS[i], ARGV[2]))
  end
end
return {0, changed}
