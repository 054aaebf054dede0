-- Reads the value, and for a plain semaphore the record of the call's lane. Twin: State::read in
-- src/store/calls/semaphore.rs.
--
-- KEYS   1 the value, 2 the permits that are out, 3 the channel; with a lane 4 its record: the number of its last call
--        and the permits that this took, or gave back if the number is negative, in 7 bytes each
-- ARGV   1 the time, 2 plain or expirable, 3 1 in a cluster; from 4 on: see the script. Each argument costs a twentieth
--        of an empty script, so numbers are packed into one: little-endian, in 7 bytes, 0 if there is none. With a lane
--        4 begins with the number of the call, and the lowest number of a call whose grant nobody uses
-- reply  {0, …}; or {-8, 0, value=text}: unreadable; {-11}: a later call of the lane was carried out;
--        {-14}: there is no semaphore; {-15}: it is no plain one; {-16}: it would have too many permits
-- The largest value, with which sums are exact; and a day, until which what a call took can be given back.
local MOST, RECORD_MS = 2^52, '86400000'
local is_plain = ARGV[2] == 'plain'
local text = call('GET', KEYS[1])
-- The value before and after the call; nil if there is none.
local v = text and (text == '0' or string.find(text, '^%-?[1-9]%d*$')) and text + 0 or nil
local new = v
if text and not (v and v <= MOST and v >= -MOST) then
  return {-8, 0, 'value=' .. text}
elseif is_plain and not (KEYS[4] and (ARGV[5] or '') == '') and call('EXISTS', KEYS[2]) == 1 then
  -- What a numbered call without requests gives back was taken as plain permits.
  return {-15}
end
-- What the lane's last call took, which is that of an earlier attempt if this one is a repetition; what to record.
local number, abandon, last, took, record = 0, 0, 0, nil, nil
-- The time to live of both keys from now on, in ms; nil if it stays as it is. Or they only must not end before.
local keep_alive, only_extends
if KEYS[4] then
  number, abandon = struct.unpack('<I7I7', ARGV[4])
  local stored = call('GET', KEYS[4])
  if stored and #stored == 14 then
    last, took = struct.unpack('<I7i7', stored)
  end
  if last > number then
    return {-11}
  elseif v and abandon > 0 and last >= abandon and last < number and took > 0 then
    new = v + took
  end
end
