-- The arguments of an acquire from several limiters; the head of acquire_all.lua explains them.
--
-- Sets   entry, after, is_again, dates: text, as it was sent; the others for each limiter in its turn.
--        names: all keys; KEYS: those of one limiter
local entry, after, is_again, dates = unpack(ARGV, 2, 5)
local seen, total, groups, creation, audit_limit, reserves, reserved_date
local names, KEYS = KEYS, KEYS
