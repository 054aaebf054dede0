-- Reads keys of a limiter or a semaphore as they are, at one moment, and what an acquire would find. Writes nothing.
-- Twin: src/store/calls/inspect.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log; or those of a semaphore
-- ARGV   1 the most members to read of a sorted set
--        2 the time in epoch ms; '' for the server's clock
-- reply  {0, the server's time in µs as text, or '' if the user may not ask for it, then for each key:
--        {} if it is missing; {-2} if it has no type of these; or {its time to live in ms, -1 for none, then}
--        a hash        {rate, interval, type, keep-alive}, as text
--        a text        the text
--        a sorted set  the number of members, {member, score, …}, lowest score first
--        and then the reply of peek.lua for one permit, to a client that has seen this rate; {} if a key of the limiter
--        has another type}

-- Whether a key has content of this kind in the reply, or is missing.
local function is(key, kind)
  return #key == 0 or type(key[2]) == kind
end

local function verdict()
  if not is(reply[3], 'table') then
    return {}
  end
  local problem = read_config(s)
  if problem then
    return problem
  end
  local value, log = unpack(reply, s.per_client * 2 + 4, s.per_client * 2 + 5)
  if not (is(value, 'string') and is(log, 'number')) then
    return {}
  end
  return peek(s, 1, fields[3] .. ' ' .. fields[1])
end

reply[8] = verdict()
return reply
