-- Sets the rate, and fits value and log to it or deletes them.
-- Twin: src/store/calls/rates.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- ARGV   1 the time in epoch ms; '' for the server's clock
--        2 rate, 3 interval, 4 type, 5 keep-alive (0 for none)
--        6 1: only if the hash exists
--        7 value and log: 0 deletes those of the new mode; 1 does the same, but deletes all four if the mode
--          changes; 2 keeps them, but deletes all four if the mode changes
--        8 to 11 like 2 to 5: the only rate that it replaces; absent for any
-- reply  {0, 1 if it was set}
--        or {-3, …}: see part/live_log.lua; with 8 {-4, …}, {-2, …}: see part/stored_rate.lua
if ARGV[6] == '1' and call('EXISTS', KEYS[1]) == 0 then
  return {0, 0}
end
if ARGV[8] then
  local problem = read_stored_rate(s)
  if problem then
    return problem
  end
  local found = {s.rate, s.interval, s.per_client, s.keep_alive}
  local is_from, is_new = true, true
  for i = 1, 4 do
    -- A repeated call finds its own rate.
    is_from = is_from and found[i] == ARGV[i + 7] + 0
    is_new = is_new and found[i] == ARGV[i + 1] + 0
  end
  if not (is_from or is_new) then
    return {0, 0}
  end
end
s.now = tonumber(now_text)
s.rate, s.interval, s.keep_alive = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
s.value_key, s.log_key = KEYS[2], KEYS[3]
if ARGV[4] == '1' then
  s.value_key, s.log_key = KEYS[4], KEYS[5]
end
local other_mode = fields[3] and fields[3] ~= ARGV[4]
local keep = ARGV[7] == '2' and not other_mode
-- Delete keys one by one: in a cluster's slot that is being moved, a command on several keys needs all of them.
if ARGV[7] ~= '0' and other_mode then
  for i = 2, 5 do
    call('DEL', KEYS[i])
  end
elseif not keep then
  call('DEL', s.value_key)
  call('DEL', s.log_key)
end
if keep then
  call('GET', s.value_key) -- raises WRONGTYPE before anything is written
  read_log(s, math.huge)
  sum_log(s)
  if s.foreign then
    return s.foreign
  end
end
call('HSET', KEYS[1], 'rate', ARGV[2], 'interval', ARGV[3], 'type', ARGV[4],
  'keepAliveTime', ARGV[5])
local had_keep_alive = fields[4] and string.find(fields[4], '^0*[1-9]%d*$')
if keep then
  write_log(s)
  call('SET', s.value_key, int(s.rate - s.log_total))
end
if s.keep_alive > 0 then
  call('PEXPIRE', KEYS[1], ARGV[5])
elseif had_keep_alive then
  -- Remove the time to live that the keep-alive had set.
  for _, key in ipairs({KEYS[1], s.value_key, s.log_key}) do
    if ARGV[4] == '0' then
      call('PERSIST', key)
    else
      call('PEXPIRE', key, int(FAR_TTL_MS))
    end
  end
end
if keep then
  refresh_lifetime(s)
end
return {0, 1}
