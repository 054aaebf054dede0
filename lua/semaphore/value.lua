-- Reads the value, and for a plain semaphore the record of the call's lane. Twin: State::read in
-- src/store/calls/semaphore/state.rs.
--
-- KEYS   1 the value, 2 the permits that are out, 3 the channel; with a lane 4 its record: the number of its last call
--        and the permits that this took, or gave back if the number is negative
-- ARGV   1 the time, 2 plain or expirable, 3 1 in a cluster, 4 the number of the call in its lane, 5 the lowest number
--        of a call whose grant nobody uses; both '' if there is none; from 6 on: see the script
-- reply  {0, …}; or {-8, 0, value=text}: unreadable; {-11}: a later call of the lane was carried out;
--        {-14}: there is no semaphore; {-15}: it is no plain one; {-16}: it would have too many permits
-- The largest value, with which sums are exact.
local MOST = 2^52
local is_plain, number, abandon = ARGV[2] == 'plain', tonumber(ARGV[4]), tonumber(ARGV[5])
local text = call('GET', KEYS[1])
-- The value before and after the call; nil if there is none.
local v = text and (text == '0' or string.find(text, '^%-?[1-9]%d*$')) and text + 0 or nil
local new = v
if text and not (v and v <= MOST and v >= -MOST) then
  return {-8, 0, 'value=' .. text}
elseif is_plain and call('EXISTS', KEYS[2]) == 1 then
  return {-15}
end
-- What the lane's last call took, which is that of an earlier attempt if this one is a repetition; what to record.
local last, took, record
-- The time to live of both keys from now on, in ms; nil if it stays as it is.
local keep_alive
if number then
  last, took = string.match(call('GET', KEYS[4]) or '', '^(%d+) (%-?%d+)$')
  last, took = tonumber(last) or 0, tonumber(took)
  if last > number then
    return {-11}
  elseif v and abandon and last >= abandon and last < number and took > 0 then
    new = v + took
  end
end
