-- Removes a value and a log that carry no information: if all permits are available, the next user of the
-- limiter finds the same state without them. If there is no hash, removes a log with only old entries of
-- Redisson, or a lone integer value. Never removes keys of other types, or other texts.
-- Twin: src/store/calls/remove_unused.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log;
--        and the hash of the limiter with the same values and logs (`{api}` for `api`, and `api` for
--        `{api}`), if there can be one in this slot: while it exists, nothing is removed
-- ARGV   1 the time in epoch ms; '' for the server's clock
--        2 the least age in ms of the last grant if there is no hash
-- reply  {0, keys removed}
--        or {-1, …}, {-2, …}, {-3, …}: see part/config.lua and part/live_log.lua

if KEYS[6] and call('EXISTS', KEYS[6]) == 1 then
  return {0, 0}
end

-- Deletes keys one by one: in a cluster's slot that is being moved, a command on several keys needs all of them.
local function remove(value_key, log_key)
  return call('DEL', value_key) + call('DEL', log_key)
end

-- Whether all entries of a log are Redisson's, and none is younger than the cutoff.
local function is_old_log(log_key, count, cutoff)
  local newest = call('ZRANGE', log_key, '-1', '-1', 'WITHSCORES')
  if tonumber(newest[2]) > cutoff then
    return false
  end
  for at = 0, count - 1, 1000 do
    local step = call('ZRANGE', log_key, int(at), int(at + 999))
    for i = 1, #step do
      if not permits_of(step[i]) then
        return false
      end
    end
  end
  return true
end

if not (fields[1] or fields[2] or fields[3] or fields[4]) and call('EXISTS', KEYS[1]) == 0 then
  -- Only their names say that these are a limiter's keys: another program may use the same names.
  local unused = {}
  local cutoff = tonumber(now_text) - tonumber(ARGV[2])
  for i = 2, 4, 2 do
    local text, count = call('GET', KEYS[i]), call('ZCARD', KEYS[i + 1])
    local is_number = integer(text) ~= nil
    if count == 0 and is_number
      or count > 0 and (is_number or not text) and is_old_log(KEYS[i + 1], count, cutoff) then
      unused[#unused + 1] = i
    end
  end
  local removed = 0
  for _, i in ipairs(unused) do
    removed = removed + remove(KEYS[i], KEYS[i + 1])
  end
  return {0, removed}
end
local problem = read_all(s)
if problem then
  return problem
end
if not s.known and (s.size == 0 or call('EXISTS', s.value_key) == 1) then
  -- There is nothing, or a value that is not an integer: its owner is unknown.
  return {0, 0}
end
settle(s)
heal(s, false, math.huge)
if s.foreign then
  return s.foreign
end
if s.deficit ~= 0 or s.value ~= s.rate then
  return {0, 0}
end
return {0, remove(s.value_key, s.log_key)}
