-- While its slot is being moved away, a key that a call has emptied cannot be written again: new keys belong to
-- the other node. So a call whose drop would empty the log must wait, with nothing written; and so must a
-- repeated call, which takes its own entry out of the log first, if the log has nothing else in it.
--
-- Reads  KEYS: hash, value and log of the mode in force; ARGV: 1 the time in epoch ms, or ''; of an acquire
--        13 is_again; after the arguments the names of all keys, and their number
do
  local arguments = #ARGV - 1 - tonumber(ARGV[#ARGV])
  local taken_out = arguments >= 13 and ARGV[13] == '1' and 1 or 0
  local now = tonumber(ARGV[1]) or redis.call('TIME')[1] * 1000 + 1000
  local interval = tonumber(redis.call('HGET', KEYS[1], 'interval')) or 0
  if redis.call('ZCOUNT', KEYS[3], string.format('(%.0f', now - interval), '+inf') <= taken_out then
    return redis.error_reply('TRYAGAIN the slot is being moved, and the log has expired')
  end
end
