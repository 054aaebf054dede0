-- The beginning of a policy's script: its arguments, and the time.
--
-- KEYS   1 the hash of the limiter; for lua/foreign: 1 the key of the others, 2 the hash of the lanes
-- ARGV   by the names below; '' means nothing, and empty ones at the end are left out: each costs 0.1 microseconds
--        wanted     the parameters, as the field c has them
--        lane       the lane of the call, whose record is the field @lane
--        number     the number of the call in its lane, from 1
--        requests   groups of equal requests: permits (4 bytes), the longest wait in ms (7), count (4), each
--                   little-endian. give: the mark of the grant. peek: a number of permits, 0 for none.
--                   Change: how long an unused limiter is kept, in ms, 0 for ever
--        bounds     what a policy's own file says
--        action     '' to take, give, peek; or how parameters change: keep, scale, reset
--        permits    give: how many permits come back
--        is_stored  1 if the stored parameters are in force, whatever `wanted` says
--        abandon    the lowest number of a call in this lane whose grant nobody uses
--        max_age    the age in microseconds beyond which an earlier grant of this call is not used
--        time_text  the time in epoch microseconds; '' for the server's clock
-- reply  take   {0, time of the decision, now, 0, or 1 + what it was granted before, available, mark, its fraction,
--               outcomes …}, an outcome being count, kind, wait in microseconds
--               kinds: 0 granted, 1 refused, 2 refused with a wait of at least so much, 3 waiting, 4 waiting at
--               least so much, 5 more than the limit; 8 granted from a time on: 1, 8, time, mark, its fraction
--        give   {0, permits credited}
--        peek   {0, available, limit, wait, 1 if it is a lower bound, parameters}
--        change {0}
--        or {-8, 0, field=text}: unreadable; {-9}: no parameters are stored; {-10, now, parameters}: the bounds are
--        not around now, or for other parameters; {-11}: a later call of the lane was carried out;
--        {-12, 0, text}, {-13, 0, text}: the application is not listed, the format of the others is not followed
local call, format, floor, ceil, min, max = redis.call, string.format, math.floor, math.ceil, math.min, math.max
local wanted, lane, number, requests, bounds, action, permits, is_stored, abandon, max_age, time_text = unpack(ARGV)
-- The time of the decision.
local now
if (time_text or '') == '' then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
else
  now = max(0, min(time_text - 0, 5000000000000000))
end
