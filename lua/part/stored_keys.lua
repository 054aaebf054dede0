-- Keys as they are, and the time.
--
-- Reads  KEYS, ARGV
-- Sets   call: redis.call; reply: that of inspect.lua, but for its last part; now_text: the second argument, or the
--        server's time if that is ''; fields: those of the first key, if it is a hash
local call = redis.call
local most = tonumber(ARGV[1])

local function read_hash(key)
  return redis.pcall('HMGET', key, 'rate', 'interval', 'type', 'keepAliveTime')
end

local function read_text(key)
  return redis.pcall('GET', key)
end

local function read_set(key)
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

local readers = {read_hash, read_text, read_set}

-- The state of a key. The first reader to try is the one for what a limiter has there: servers count failed commands.
local function look(key, first)
  local ttl = call('PTTL', key)
  if ttl == -2 then
    return {}
  end
  for i = first, first + 2 do
    local content, more = readers[(i - 1) % 3 + 1](key)
    if type(content) ~= 'table' or not content.err then
      return {ttl, content, more}
    elseif not string.find(content.err, 'WRONGTYPE', 1, true) then
      return content
    end
  end
  return {-2}
end

local now_text = ARGV[2]
local time = (now_text == '' and call or redis.pcall)('TIME')
local reply = {0, time.err and '' or string.format('%.0f', time[1] * 1000000 + time[2])}
if now_text == '' then
  now_text = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
for i, first in ipairs({1, 2, 3, 2, 3}) do
  reply[i + 2] = look(KEYS[i], first)
  if reply[i + 2].err then
    return reply[i + 2]
  end
end
local fields = type(reply[3][2]) == 'table' and reply[3][2] or {}
