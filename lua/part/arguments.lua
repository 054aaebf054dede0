-- The arguments of an acquire by their names; the head of acquire.lua says what they mean. The first is the
-- time (part/clock.lua). Those at the end that say nothing are left out, and are nil.
--
-- Sets   what is declared here: text, as it was sent
local entry, seen, expects_expired, total, groups, after, hold, creation, reserves, audit_limit, share_terms,
  is_again, dates, reserved_date, headroom = unpack(ARGV, 2, 16)
