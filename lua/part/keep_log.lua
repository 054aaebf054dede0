-- While its slot is being moved away, a key that a call has emptied cannot be written again: new keys
-- are for the other node. So a call whose drop would empty the log must wait, and nothing is written;
-- and so must one that takes a reservation out of the log first.
--
-- Reads  KEYS: hash, value and log of the mode in force; ARGV: 1 the time in epoch ms, or ''; 7 of an
--        acquire
do
  if string.find(ARGV[7] or '', '^%d+ r ') then
    return redis.error_reply('TRYAGAIN the slot is being moved, and permits are reserved')
  end
  local now = tonumber(ARGV[1]) or redis.call('TIME')[1] * 1000 + 1000
  local interval = tonumber(redis.call('HGET', KEYS[1], 'interval')) or 0
  if redis.call('ZCOUNT', KEYS[3], string.format('(%.0f', now - interval), '+inf') == 0 then
    return redis.error_reply('TRYAGAIN the slot is being moved, and the log has expired')
  end
end
