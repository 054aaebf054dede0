-- What the formats of other services share, between policy/head.lua and a format's own file. Their keys hold what
-- the other services would have written, and nothing else; calls are counted in a hash of our own.
--
-- KEYS   1 the key of the other services; 2 our hash with the records of lanes; from the 3rd on: further keys of theirs
local key, lanes = KEYS[1], KEYS[2]

-- Reads the lane's record. The state has no stored parameters, and is kept as long as its owners keep it ('0').
local function read_record()
  return nil, '0', lane ~= '' and call('HGET', lanes, '@' .. lane) or nil
end

-- Writes the record, which is needed until no attempt of the call can follow.
local function write_record(fields)
  if fields[1] then
    call('HSET', lanes, unpack(fields))
    call('PEXPIRE', lanes, 60000)
  end
end

local function unreadable(field, text)
  local found = text and ' is "' .. string.sub(text, 1, 60) .. '", which is out of range' or ' is missing'
  problem = problem or {-13, 0, field .. found}
end

-- The number that a field has, at least this and below 2^53.
local function decimal(field, text, least)
  local n = tonumber(text or '')
  if n and n >= least and n < 9007199254740992 then
    return n
  end
  unreadable(field, text)
  return least
end

function ttl()
  return 0
end

function change(switch)
  switch()
end
