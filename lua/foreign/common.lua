-- What the formats of other services share, between policy/head.lua and a format's own file. Their keys hold what
-- the other services would have written, and nothing else; calls are counted in a hash of our own. Parameters are
-- texts, which are not stored.
--
-- KEYS   1 the key of the other services; 2 our hash with the records of lanes; from the 3rd on: further keys of
--        theirs. Mixer's last, if the call is for a key of its caller: the hash that remembers what this was granted
local key, lanes_key, stored, record, deadline, kept = KEYS[1], KEYS[2], wanted, nil, 0, 0

-- The numbers that the parameters consist of by this pattern.
local function parameters(pattern)
  local a, b, c = string.match(wanted, pattern)
  return tonumber(a), tonumber(b), tonumber(c)
end

-- Reads the lane's record.
local function read_record(dedup)
  if dedup then
    local permits, ends = unpack(call('HMGET', dedup, 'token', 'expire'))
    permits, ends = tonumber(permits or ''), tonumber(ends or '')
    if permits and ends and permits >= 1 and permits <= 4294967295 and ends > now * 1000 then
      record = pack('<I7I7I7I7I4', numbers('<I7', requests), now, permits, 0, 0)
    end
  elseif lane ~= '' then
    record = call('HGET', lanes_key, lane)
  end
end

-- Writes the record, which is needed until no attempt of the call can follow; Mixer's has its end in nanoseconds.
local function write_record(own, dedup, ends)
  if dedup then
    local _, _, permits = numbers('<I7I7I7', own)
    call('HSET', dedup, 'token', format('%d', permits), 'expire', format('%.17g', ends))
    call('PEXPIRE', dedup, format('%d', ceil((ends / 1000 - now) / 1000)))
  elseif own then
    call('HSET', lanes_key, lane, own)
    call('PEXPIRE', lanes_key, HORIZON)
  end
end

local function unreadable(field, text)
  local found = text and ' is "' .. string.sub(text, 1, 60) .. '", which is out of range' or ' is missing'
  failure = failure or {-13, 0, field .. found}
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
