-- Counts the permits that are out, and those of them whose leases have ended. Twin: SemaphoreCall::decide in
-- src/store/calls/semaphore/acquire.rs.
--
-- ARGV   7 how many of the permits that come back the requests may take, 8 the permits to set if there is no semaphore,
--        or '', 9 1 if an earlier attempt may have been carried out, 10 groups of equal requests: permits, count, 1 if they
--        wait; 11 the permits of all of them. Expirable: 12 the first bytes of the ids, 13 the lease in ms, or ''
local REAPED = 1000
local wanted, id = tonumber(ARGV[11]), ARGV[12]
local out, expired = 0, 0
if not is_plain then
  out = call('ZCARD', KEYS[2])
end
if out > 0 then
  out = call('ZCOUNT', KEYS[2], 0, '+inf') - counted
  expired = min(call('ZCOUNT', KEYS[2], 0, now) - late, max(wanted, REAPED))
end
new = new or tonumber(ARGV[8]) and ARGV[8] - out
if not new then
  return {-14}
elseif new + expired > MOST then
  return {-16}
end
