-- Renews leases. Twin: src/store/calls/semaphore/release.rs.
--
-- KEYS   1 the permits that are out, 2 the value
-- ARGV   1 the time, 2 the lease in ms, or '', 3 1 if leases may end earlier than before, 4 the ids, 16 bytes each,
--        5 the time to live of both keys in ms, if no lease ends later; with 0 they only do not end before these; ''
--        if it stays as it is
-- reply  {0, 1 if the permit is out …}
local ends = ARGV[2] == '' and 922337203685477 or min(now + ARGV[2], 99999999999999)
local reply = {0}
-- A command takes some thousand arguments.
for from = 1, #ARGV[4], 16000 do
  local ids, renewed = {}, {}
  for i = from, min(from + 15999, #ARGV[4]), 16 do
    ids[#ids + 1] = string.sub(ARGV[4], i, i + 15)
  end
  for i, old in ipairs(call('ZMSCORE', KEYS[1], unpack(ids))) do
    reply[#reply + 1] = old and 1 or 0
    if not old then
      -- A master that has become a replica, and lags behind, then refuses the call instead of telling a holder that
      -- its permit is lost.
      call('ZREM', KEYS[1], ids[i])
    end
    old = tonumber(old) or ends
    if old < ends or ARGV[3] == '1' and old > ends then
      renewed[#renewed + 1], renewed[#renewed + 2] = ends, ids[i]
    end
  end
  if #renewed > 0 then
    call('ZADD', KEYS[1], unpack(renewed))
  end
end
if ARGV[5] ~= '' then
  local left = ARGV[5] == '0' and call('PTTL', KEYS[2]) or 0
  if left >= 0 then
    -- Ends may be later than one that never comes, or fractions.
    local last = ARGV[5] == '0' and ends or call('ZRANGE', KEYS[1], '-1', '-1', 'WITHSCORES')[2] or now
    local keep_alive = max(ARGV[5], left, floor(min(last, 922337203685477)) - now)
    call('PEXPIRE', KEYS[1], keep_alive)
    call('PEXPIRE', KEYS[2], keep_alive)
  elseif left == -1 then
    -- Redisson's `addPermits` ends the value's time to live, and not that of the permits that are out.
    call('PERSIST', KEYS[1])
  end
end
return reply
