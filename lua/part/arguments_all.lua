-- The arguments of an acquire from several limiters.
--
-- ARGV   1 the time in epoch ms; '' for the server's clock
--        2 after, 3 is_again, 4 dates: as those of acquire.lua
--        and for each limiter
--        an entry of the call's id with all requested permits (21 bytes); its first 17 bytes if they are more
--        than an entry holds
--        all requested permits
--        the type, rate, interval and keep-alive that the client last saw in the hash, with one space between
--        the rate to create the limiter with: rate, interval, type, keep-alive
--        the longest log that is to be summed
--        the requests, groups of equal ones: permits (4 bytes), the longest wait in ms (7), count (4), each
--        little-endian; waits and counts are those of every limiter
-- Sets   after, is_again, dates: text, as it was sent; the others for each limiter in its turn, or not at all.
--        names: all keys; KEYS: those of one limiter
local after, is_again, dates = unpack(ARGV, 2, 4)
local entry, total, seen, creation, audit_limit, groups, reserves, reserved_date, hold, headroom, share_terms
local names, KEYS = KEYS, KEYS
