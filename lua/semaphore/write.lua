-- The end of a script that changes permits: writes the value, and announces the permits that became free. A message
-- for each wakes waiters one by one; the last of 64 stands for the rest. A user who may not publish changes permits all
-- the same; those who wait then learn of it when they next ask. Releases before and after Redisson 3.22
-- listen to different kinds of channels in a cluster. Twin: State::write in src/store/calls/semaphore.rs.
--
-- reply  the last element: the number of listeners that were told; -1 if there was nothing to tell, or no permission to
if new ~= v and (new > MOST or new < -MOST) then
  return {-16}
end
-- The record first, and by the same command as the value: without the right to it nothing is written, and a repetition
-- does not count again.
if record then
  call('SET', KEYS[4], struct.pack('<I7i7', number, record), 'PX', RECORD_MS)
end
if new ~= v then
  call('SET', KEYS[1], string.format('%d', new), 'KEEPTTL')
end
local left = keep_alive and only_extends and call('PTTL', KEYS[1]) or 0
if keep_alive and left >= 0 then
  -- Nothing is removed under a permit that somebody has for longer, unless others set the time to live.
  -- Ends may be later than one that never comes, or fractions.
  local last = not only_extends and call('ZRANGE', KEYS[2], '-1', '-1', 'WITHSCORES')[2] or now
  keep_alive = max(keep_alive, left, floor(min(last, 922337203685477)) - now)
  call('PEXPIRE', KEYS[1], keep_alive)
  call('PEXPIRE', KEYS[2], keep_alive)
end
local freed = (new and new > 0 and new or 0) - (v and v > 0 and v or 0)
local listeners = -1
for i = 1, freed < 64 and freed or 64 do
  local message = i < 64 and '1' or min(freed - 63, 2147483647)
  listeners = redis.pcall('PUBLISH', KEYS[3], message)
  if ARGV[3] == '1' then
    redis.pcall('SPUBLISH', KEYS[3], message)
    -- A node counts its own listeners, and there are others.
    listeners = tonumber(listeners) and 2^31
  end
end
-- A user who may not publish gets a table.
reply[#reply + 1] = tonumber(listeners) or -1
return reply
