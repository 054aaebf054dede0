-- Decides requests in order and takes their permits. Twin: src/store/calls/semaphore/acquire.rs.
--
-- ARGV   4 behind what value.lua reads: the permits to set if there is no semaphore, and 1; the permits of all requests;
--        the lease in ms, and 1; the time to live of both keys in ms, and 1, which alone says that they only must not end
--        before what is granted; and in one byte 1 if an earlier attempt may have been carried out, which only expirable
--        ones ask. 5 for each group of equal requests: permits, count, and in one byte 1 if they wait
--        expirable: 6 the first bytes of the ids
-- reply  {0, now, permits free, all permits, the end of the first lease or -1, granted …}, the last for each group: the
--        number of requests granted, -1 if each is for more than all permits
local REAPED = 1000
local _, _, create, wanted, lease, keep, is_repeat = struct.unpack('<I7I7I7I7I7I7B', ARGV[4])
local id = ARGV[6]
only_extends = keep == 1
keep_alive = keep > 1 and keep - 1 or nil
local out, expired = 0, 0
if not is_plain then
  out = call('ZCARD', KEYS[2])
end
if out > 0 then
  out = call('ZCOUNT', KEYS[2], '0', '+inf')
  expired = min(call('ZCOUNT', KEYS[2], '0', now), max(wanted, REAPED))
end
new = new or create > 0 and create - 1 - out or nil
if new and new + expired > MOST then
  return {-16}
elseif expired > 0 then
  local first = call('ZCOUNT', KEYS[2], '-inf', '(0')
  call('ZREMRANGEBYRANK', KEYS[2], first, first + expired - 1)
end
if not new then
  if abandon > 0 then
    -- An attempt that is still on its way must not do anything any more.
    call('SET', KEYS[4], struct.pack('<I7i7', number, 0), 'PX', RECORD_MS)
  end
  return {-14}
end
new, out = new + expired, out - expired

-- Permits that an earlier attempt took are granted again, to the same requests.
local is_replay, free = took and last == number, new
if is_replay then
  free = took
elseif is_repeat == 1 and not is_plain then
  local held = 0
  while held < wanted and (tonumber(call('ZSCORE', KEYS[2], id .. struct.pack('>I4', held))) or 0) > now do
    held = held + 1
  end
  if held > 0 then
    is_replay, free = true, held
  end
end
local total, granted, is_blocked, is_short = is_plain and 0 or max(new + out, 0), 0, false, false
-- A table that grows, and a function of the server's, take as long as ten lines here.
local reply = {0, now, 0, total, -1, ARGV[5] ~= '' and 0 or nil}
for at = 1, #ARGV[5], 15 do
  local permits, count, waits = struct.unpack('<I7I7B', ARGV[5], at)
  local fit = 0
  if permits <= free and not is_blocked then
    fit = (free - free % permits) / permits
    fit = fit < count and fit or count
    free, granted = free - fit * permits, granted + fit * permits
  end
  if fit == 0 and not is_plain and (permits > total or is_replay and free > 0 and waits == 1) then
    -- With grants to follow, it did not block them the first time.
    fit = -1
  elseif fit < count then
    is_short, is_blocked = true, is_blocked or waits == 1
  end
  reply[6 + (at - 1) / 15] = fit
end

if is_plain and not is_replay then
  new = new - granted
  -- If nothing was granted, too: what the network delivers twice could otherwise take permits the second time.
  record = KEYS[4] and granted
elseif granted > 0 and not is_plain then
  -- An id that is out already has its permit, and its lease begins anew.
  local score = lease == 0 and '922337203685477' or string.format('%d', min(now + lease - 1, 99999999999999))
  for from = 0, granted - 1, 1000 do
    local members = {score, id .. struct.pack('>I4', from)}
    for i = from + 1, min(from + 1000, granted) - 1 do
      members[#members + 1] = score
      members[#members + 1] = id .. struct.pack('>I4', i)
    end
    new = new - call('ZADD', KEYS[2], 'GT', unpack(members))
  end
  if only_extends then
    keep_alive = score - now
  end
  local ttl = v and not keep_alive and call('PTTL', KEYS[1]) or -1
  if ttl > 0 then
    call('PEXPIRE', KEYS[2], ttl)
  end
end
if is_short and not is_plain then
  local first = tonumber(call('ZRANGEBYSCORE', KEYS[2], 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
  reply[5] = first and first < 922337203685477 and first or -1
end
reply[3] = new
if granted == 0 and not v and out == 0 then
  -- What is refused sets nothing up. (Permits that are out have lost their value, which comes back.)
  new = nil
end
