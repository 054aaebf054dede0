-- What the formats of other services share, between policy/head.lua and a format's own file. Their keys hold what
-- the other services would have written, and nothing else; calls are counted in a hash of our own.
--
-- KEYS   1 the key of the other services; 2 our hash with the records of lanes; from the 3rd on: further keys of
--        theirs. Mixer's last, if the call is for a key of its caller: the hash that remembers what this was granted
local key, lanes = KEYS[1], KEYS[2]

-- Reads the lane's record. The state has no stored parameters, and is kept as long as its owners keep it ('0').
local function read_record(dedup)
  if dedup then
    local permits, ends = unpack(call('HMGET', dedup, 'token', 'expire'))
    permits, ends = tonumber(permits or ''), tonumber(ends or '')
    local is_kept = permits and ends and permits >= 1 and permits <= 4294967295 and ends > now * 1000
    return nil, '0', is_kept and format('%s:%d:%d:0', number, now, permits) or nil
  end
  return nil, '0', lane ~= '' and call('HGET', lanes, '@' .. lane) or nil
end

-- Writes the record, which is needed until no attempt of the call can follow; Mixer's has its end in nanoseconds.
local function write_record(fields, dedup, ends)
  if dedup then
    local permits = string.match(fields[#fields], '^%d+:%d+:(%d+):')
    call('HSET', dedup, 'token', permits, 'expire', format('%.17g', ends))
    call('PEXPIRE', dedup, int(ceil((ends / 1000 - now) / 1000)))
  elseif fields[1] then
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
