-- What the formats of other services share, between policy/head.lua and a format's own file. Their keys hold what
-- the other services would have written, and nothing else; calls are counted in a hash of our own. Parameters are
-- a letter, and numbers of 7 bytes each; they are not stored.
--
-- KEYS   1 the key of the other services; 2 our hash with the records of lanes; 3 if it has one, their further key.
--        If the call is for a key of its caller, the second is Mixer's hash that remembers what that was granted, in
--        its field `token`, which is then the lane
local key, lanes_key, is_foreign, stored, record, deadline, kept = KEYS[1], KEYS[2], true, wanted, nil, 0, 0

-- The lane's record.
if lane == 'token' then
  local permits, ends = unpack(call('HMGET', lanes_key, 'token', 'expire'))
  permits, ends = tonumber(permits or ''), tonumber(ends or '')
  if permits and ends and permits >= 1 and permits <= 4294967295 and ends > now * 1000 then
    record = pack('<I7I7I7I7I4', numbers('<I7', requests), now, permits, 0, 0)
  end
elseif lane ~= '' then
  record = call('HGET', lanes_key, lane)
end

-- The number that a field has, from `least` on and below 2^53, or `most`. Without one between them: an error.
local function decimal(field, text, least, most)
  local n = tonumber(text)
  if n and n >= least and n < (most or 9007199254740992) then
    return n
  end
  local found = text and ' is "' .. string.sub(text, 1, 60) .. '", which is out of range' or ' is missing'
  failure = failure or {-13, 0, field .. found}
  return least
end
