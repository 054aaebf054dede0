-- The beginning of a policy's script, before the policy's own file: arguments, and the names that all parts share.
--
-- KEYS   1 the hash of the limiter; for lua/foreign: 1 the key of the others, 2 the hash of the lanes
-- ARGV   by the names below; '' means nothing
--        action     take, give, peek; or how parameters change: keep, scale, reset
--        time_text  the time in epoch microseconds; '' for the server's clock
--        wanted     the parameters, as the field c has them
--        is_stored  1 if the stored parameters are in force, whatever `wanted` says
--        lane       the lane of the call, whose record is the field @lane
--        number     the number of the call in its lane, from 1
--        abandon    the lowest number of a call in this lane whose grant nobody uses
--        max_age    the age in microseconds beyond which an earlier grant of this call is not used
--        requests   take: groups of equal requests: permits (4 bytes), the longest wait in ms (7), count (4), each
--                   little-endian. give: the mark of the grant. peek: a number of permits, 0 for none.
--                   Change: how long an unused limiter is kept, in ms, 0 for ever
--        permits    give: how many permits come back
--        from the 11th on: what a policy's own file says
-- reply  take   {0, time of the decision, now, 1 if it was decided before, available, mark, its fraction,
--               outcomes …}, an outcome being count, kind, wait in microseconds
--               kinds: 0 granted, 1 refused, 2 refused with a wait of at least so much, 3 waiting, 4 waiting at
--               least so much, 5 more than the limit; 8 granted from a time on: 1, 8, time, mark, its fraction
--        give   {0, permits credited}
--        peek   {0, available, limit, wait, 1 if it is a lower bound, parameters}
--        change {0}
--        or {-8, 0, field=text}: unreadable; {-9}: no parameters are stored; {-10, now, parameters}: the bounds are
--        not around now, or for other parameters; {-11}: a later call of the lane was carried out;
--        {-12, 0, text}, {-13, 0, text}: the application is not listed, the format of the others is not followed
local call, floor, ceil, min, max = redis.call, math.floor, math.ceil, math.min, math.max
local action, time_text, wanted, is_stored, lane, number, abandon, max_age, requests, permits = unpack(ARGV)
-- The state as a table, nil if there is none; the time of the decision; the most permits at once; an error reply.
local s, now, limit, problem = nil, 0, 0, nil
-- What a policy may replace, see tail.lua.
local read_state, write_state, decide
-- The lane's record: its last call, the time and the permits of its grant, and the mark.
local last, at, total, given, given_f
-- The number of requests behind a waiting one whose waits are exact.
local EXACT_WAITS = 16
local reply, has_denied = {0}, false

local function int(n)
  return string.format('%.0f', n)
end

-- The integer of 0..2^53-1 that `text` represents.
local function whole(text)
  if text and #text <= 16 and string.find(text, '^%d+$') then
    local n = tonumber(text)
    return n < 9007199254740992 and n or nil
  end
end

-- The numbers that `text` consists of by this pattern of digits; nothing if it does not.
local function numbers(text, pattern)
  local a, b, c, d, e = string.match(text, pattern)
  return tonumber(a), tonumber(b), tonumber(c), tonumber(d), tonumber(e)
end

local function is_permits(n)
  return n and n >= 1 and n <= 4294967295
end

-- Whether it is a width or a period: 1 ms to 10 years.
local function is_span(n)
  return n and n >= 1000 and n <= 315576000000000
end

local function answer(count, kind, number)
  if count > 0 then
    local last = #reply
    has_denied = has_denied or kind >= 1 and kind <= 4
    reply[last + 1], reply[last + 2], reply[last + 3] = count, kind, number
  end
end
