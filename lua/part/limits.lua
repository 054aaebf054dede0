-- The limits of the rules; src/store/limits.rs explains them. Each is on a line of its own, with the same name
-- and number as there, which a test compares.
local SHORT_LOG = 64
local DROP_LIMIT = 2000
local EXACT_WAITS = 16
local LONGEST_SHARED_LOG = 10000
local LONGEST_RESERVATION_MS = 60000
local RESERVATION_KEPT_MS = 1000
local MAX_DEBT_PARTS = 64
local MAX_ENTRY_PERMITS = 4294967295
local MAX_EXACT = 9007199254740992
