-- Renews leases. Twin: src/store/calls/semaphore/release.rs.
--
-- KEYS   1 the permits that are out
-- ARGV   1 the time, 2 the lease in ms, or '', 3 1 if leases may end earlier than before, 4 the ids, 16 bytes each
-- reply  {0, 1 if the permit is out …}
local ends = ARGV[2] == '' and 922337203685477 or min(now + ARGV[2], 99999999999999)
local reply = {0}
for i = 1, #ARGV[4], 16 do
  local id = string.sub(ARGV[4], i, i + 15)
  local old = tonumber(call('ZSCORE', KEYS[1], id))
  reply[#reply + 1] = old and 1 or 0
  if old and (old < ends or ARGV[3] == '1' and old > ends) then
    call('ZADD', KEYS[1], int(ends), id)
  end
end
return reply
