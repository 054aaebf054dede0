-- Conversion of numbers from text and to text. It must always be explicit: Lua rounds to 14 digits, and servers
-- from 7.2 on write 1e+15 where a command expects an integer.
--
-- Reads  MAX_EXACT (part/limits.lua)

local function int(n)
  return string.format('%.0f', n)
end

-- The integer that `text` represents, if it is within 0..2^53; otherwise nil.
local function whole(text)
  if text and string.find(text, '^%d+$') then
    local n = tonumber(text)
    -- 2^53 + 1 reads as 2^53.
    if n < MAX_EXACT or n == MAX_EXACT and string.find(text, '^0*9007199254740992$') then
      return n
    end
  end
end

-- The integer that `text` represents in the form that INCRBY accepts, within -2^53..2^53; otherwise nil.
local function integer(text)
  if text and string.find(text, '^%-?[1-9]%d*$') then
    local n = whole(string.match(text, '%d+'))
    return n and (string.sub(text, 1, 1) == '-' and -n or n)
  end
  return text == '0' and 0 or nil
end
