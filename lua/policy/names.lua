-- The names that a policy's file and those behind it share.

-- The state as a table, nil if there is none; the most permits at once; an error reply.
local s, limit, problem = nil, 0, nil
-- What a policy's file sets.
local configure, roll, available, take, wait, mark, give, ttl, change
-- What it may set: how it reads, writes and decides, and a function that returns the name of a wrong field.
local read_state, write_state, check, decide
-- The lane's record: its last call, the time and the permits of its grant, and the mark.
local last, at, total, given, given_f
-- The number of requests behind a waiting one whose waits are exact.
local EXACT_WAITS = 16
local reply, has_denied = {0}, false

-- Servers of 64 bits are assumed: '%.0f' takes more than twice as long.
local function int(n)
  return format('%d', n)
end

-- The integer of 0..2^53-1 that `text` represents.
local function whole(text)
  local n = tonumber(text)
  return n and n < 9007199254740992 and #text <= 16 and not string.find(text, '%D') and n or nil
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
