-- The arguments of an acquire by name; the head of acquire.lua explains them. The first is the time
-- (part/clock.lua). Empty ones at the end are left out, and are nil.
--
-- Sets   the names declared here: text, as it was sent. names, turn_to: nil, as there is one limiter
local names, turn_to
local entry, seen, expects_expired, total, groups, after, hold, creation, reserves, audit_limit, share_terms,
  is_again, dates, reserved_date, headroom = unpack(ARGV, 2, 16)
