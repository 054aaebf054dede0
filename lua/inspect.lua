-- Reads the stored state of a limiter at one moment. Writes nothing.
-- Twin: src/store/calls/inspect.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- ARGV   1 the most entries to read of a log
-- reply  {0, the server's time in µs as text, or '' if the user may not ask for it, then for each key:
--        {} if it is missing; {-2} if it has another type; or {its time to live in ms, -1 for none, then}
--        hash   {rate, interval, type, keep-alive}, as text
--        value  the text
--        log    the number of entries, {member, score, …}, oldest first
local call = redis.call
local most = tonumber(ARGV[1])

-- The state of a key, with its time to live; `read` reads its content.
local function look(key, read)
  local ttl = call('PTTL', key)
  if ttl == -2 then
    return {}
  end
  local content, more = read(key)
  if type(content) == 'table' and content.err then
    -- Any other error becomes the reply of the script.
    return string.find(content.err, 'WRONGTYPE', 1, true) and {-2} or content
  end
  return {ttl, content, more}
end

local function read_hash(key)
  return redis.pcall('HMGET', key, 'rate', 'interval', 'type', 'keepAliveTime')
end

local function read_value(key)
  return redis.pcall('GET', key)
end

local function read_log(key)
  local count = redis.pcall('ZCARD', key)
  if type(count) == 'table' then
    return count
  end
  local members = {}
  local left = math.min(most, count)
  -- In steps, because one long reply takes twice its size in the server's memory.
  while #members < 2 * left do
    local from = #members / 2
    local last = math.min(from + 1000, left) - 1
    local step = call('ZRANGE', key, tostring(from), tostring(last), 'WITHSCORES')
    for i = 1, #step do
      members[#members + 1] = step[i]
    end
  end
  return count, members
end

local time = redis.pcall('TIME')
local reply = {0, time.err and '' or string.format('%.0f', time[1] * 1000000 + time[2])}
local readers = {read_hash, read_value, read_log, read_value, read_log}
for i = 1, 5 do
  reply[i + 2] = look(KEYS[i], readers[i])
  if reply[i + 2].err then
    return reply[i + 2]
  end
end
return reply
