-- Removes the value and the log if the limiter is of this mode, and keeps the hash.
-- Twin: src/store/calls/rates.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- ARGV   1 the type
-- reply  {type, 1, rate, interval, keep-alive}
--        or {0, 0} if there is no limiter, {-4, …}, {-2, …}: see part/stored_rate.lua
local problem = read_stored_rate(s)
if problem then
  return problem
end
if fields[3] == ARGV[1] then
  -- Delete them one by one: in a cluster's slot that is being moved, a command on several keys needs all of them.
  call('DEL', s.value_key)
  call('DEL', s.log_key)
end
return {s.per_client, 1, s.rate, s.interval, s.keep_alive}
