-- Pauses a limiter until a time, or ends a pause. Twin: src/store/calls/charge.rs.
--
-- A pause is entries that nobody holds, of more permits than the rate, which expire when it ends; the value is
-- lowered by as much. All clients write them under the same id, so that there is only one pause.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- ARGV   1 the time in epoch ms; '' for the server's clock
--        2 how long the limiter is paused from now on, in ms; 0 ends the pause
--        3 the type, rate, interval and keep-alive that the client last saw in the hash, with one
--          space between them; '' for nothing
-- reply  {type}
--        or {-1, …}, {-2, …}, {-3, …}: see part/config.lua and part/live_log.lua
local problem = read_all(s)
if problem then
  return problem
end
read_seen(s, ARGV[3])
settle(s)
if s.foreign then
  return s.foreign
end
read_id(s, PAUSE .. '\0\128')
local function part(k)
  return struct.pack('<Bc0I2I4', 16, s.id, s.tail + k, MAX_ENTRY_PERMITS)
end
local before, after, ends = 0, 0, s.now + tonumber(ARGV[2])
local score = call('ZSCORE', s.log_key, part(0))
while score and score - s.now + s.interval > 0 do
  before, ends = before + 1, math.max(ends, score + s.interval)
  score = call('ZSCORE', s.log_key, part(before))
end
if ARGV[2] ~= '0' then
  after = math.min(math.ceil(s.rate / MAX_ENTRY_PERMITS), MAX_PAUSE_PARTS)
end

-- Write.
write_log(s)
write_entries(s, after * MAX_ENTRY_PERMITS, 0, int(ends - s.interval))
for k = after, before - 1 do
  call('ZREM', s.log_key, part(k))
end
write_value(s, s.known, s.value + (before - after) * MAX_ENTRY_PERMITS)
refresh_lifetime(s)
if after > 0 and s.keep_alive > 0 then
  -- Otherwise the limiter would be gone, and the pause with it, if nobody called for a keep-alive.
  for _, key in ipairs({KEYS[1], s.value_key, s.log_key}) do
    call('PEXPIRE', key, int(math.min(ends - s.now, FAR_TTL_MS) + s.keep_alive))
  end
end
return {s.per_client}
