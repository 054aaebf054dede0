-- The arguments of a limiter's call, and the names that a policy's file and those behind it share.
--
-- KEYS   1 the hash of the limiter; for lua/foreign: 1 the key of the others, 2 the hash of the lanes
-- ARGV   by the names below; '' means nothing, and empty ones at the end are left out: each costs 0.1 microseconds.
--        Numbers are packed, little-endian, in 7 bytes where nothing else is said
--        wanted     the parameters, as the field c has them
--        lane       the field with the record of the call's lane
--        requests   the number of the call in its lane, from 1; then groups of equal requests: permits (4 bytes), the
--                   longest wait in ms (7), count (4). give: number, mark of the grant, its fraction, permits.
--                   peek: a number of permits, 0 for none. Change: how long an unused limiter is kept, in ms, 0 for
--                   ever
--        bounds     what a policy's own file says
--        action     '' to take, give, peek; or how parameters change: keep, scale, reset
--        is_stored  1 if the stored parameters are in force, whatever `wanted` says
--        abandon    the lowest number of a call in this lane whose grant nobody uses, as text
--        again      of an attempt that is not the call's first: the number of the first, and the age in microseconds
--                   beyond which an earlier grant of the call is not used; of a key's call 0, and that age
-- reply  take   the new record of the lane, and behind it a queue's parameters: all is granted; or
--               {0, now, limits, outcomes …}: limits having for each limiter {available, mark, its fraction, time of
--               the decision, 0 or 1 + what it granted before, what came back of what the lane had abandoned, 1 if the
--               parameters are others now + 2 if the lane's last grant is later than now}; an outcome being count,
--               kind, wait in microseconds
--               kinds: 0 granted, 1 refused, 2 refused with a wait of at least so much, 3 waiting, 4 waiting at
--               least so much, 5 more than the limit, and 10 more for each limiter before the one with the longest
--               wait; 8 granted by a queue, one behind the other: count, 8, the time from which on nothing was reserved
--               and its fraction, the time of the decision, permits each, permits and microseconds of the pace, slack
--        give   {0, permits credited}
--        peek   {0, available, limit, wait, 1 if it is a lower bound, parameters}
--        change {0}
--        or {-8, 0, field=text}: unreadable; {-9}: no parameters are stored; {-10, now, parameters}: the bounds are
--        not around now, or for other parameters; {-11}: a later call of the lane was carried out;
--        {-12, 0, text}, {-13, 0, text}: the application is not listed, the format of the others is not followed
local wanted, lane, requests, bounds, action, is_stored, abandon, again = unpack(ARGV, 1, 8)
-- How long records are kept at least, in ms; how much longer than necessary a key lives, so that few calls prolong it.
local HORIZON, MARGIN = 60000, 10000
-- The state: x is the mark of the last grant, nil without a state; with `has_fraction`, y is the mark's fraction. In
-- the field s the time comes first at which the key ends, then how long it is kept, both in ms; `tail` comes last: for a
-- policy with `has_excess` '', or in 4 bytes how many permits were used beyond the limit when this was lowered.
local x, y, z, has_fraction, state, layout, size, tail = nil, nil, 0, false, nil, '<I6I6I7I7I7', 33, ''
local has_excess = false
-- Of the parameters: whether they are valid, the most permits at once, a queue's longest delay.
local is_valid, limit, max_delay = false, 0, 0
-- The clock has gone back, and the state begins anew.
local is_behind = false
-- Of a queue: its parameters as one number, which a record of a call has instead of what was available then.
local version
-- The permits that are available; the start of a queue's next grant; the time from which on the state says nothing.
local free, start, ends = 0, nil, 0
-- An error reply.
local failure
local configure, roll, take, wait, give, change, schedule, write_state
