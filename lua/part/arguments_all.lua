-- The arguments of an acquire from several limiters; the head of acquire_all.lua explains them.
--
-- Sets   after, is_again, dates: text, as it was sent; the others for each limiter in its turn.
--        names: all keys; KEYS: those of one limiter
local after, is_again, dates = unpack(ARGV, 2, 4)
local entry, total, seen, creation, audit_limit, groups, reserves, reserved_date
local names, KEYS = KEYS, KEYS
