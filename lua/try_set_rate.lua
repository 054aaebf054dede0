-- Sets the rate if there is no limiter yet.
-- Twin: src/store/calls/rates.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- ARGV   rate, interval, type, keep-alive (0 for none)
-- reply  {0, 1 if it was set}
--        or {-4, missing fields: 1 rate + 2 interval} if there is a type
if fields[3] then
  local missing = (fields[1] and 0 or 1) + (fields[2] and 0 or 2)
  if missing > 0 then
    return {-4, missing}
  end
  return {0, 0}
end
local names = {'rate', 'interval', 'type', 'keepAliveTime'}
for i = 1, 4 do
  call('HSETNX', KEYS[1], names[i], ARGV[i])
end
if ARGV[4] ~= '0' then
  call('PEXPIRE', KEYS[1], ARGV[4])
end
return {0, 1}
