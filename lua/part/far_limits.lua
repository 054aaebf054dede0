-- More limits like those of part/limits.lua, which an acquire does not need.
local MOST_AHEAD_MS = 90000000
local MAX_PAUSE_PARTS = 1024
local FAR_TTL_MS = 315360000000
local ENDLESS_TTL_MS = 157680000000
