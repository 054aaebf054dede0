-- Removes the value and the log that say nothing: if all permits are available, whoever uses the limiter
-- next finds the same without them. Without a hash, if their last grant is old.
-- Twin: src/store/memory/remove_unused.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- ARGV   1 the time in epoch ms; '' for the server's clock
--        2 the age in ms that the last grant must have if there is no hash
-- reply  {0, keys removed}
--        or {-1, …}, {-2, …}, {-3, …}: see part/config.lua and part/live_log.lua

-- One by one: in a slot of a cluster that is being moved, a command on several keys needs all of them.
local function remove(value_key, log_key)
  return call('DEL', value_key) + call('DEL', log_key)
end

if not (fields[1] or fields[2] or fields[3] or fields[4]) and call('EXISTS', KEYS[1]) == 0 then
  local removed = 0
  for i = 2, 4, 2 do
    local newest = call('ZRANGE', KEYS[i + 1], '-1', '-1', 'WITHSCORES')
    if not newest[2] or tonumber(newest[2]) <= tonumber(now_text) - tonumber(ARGV[2]) then
      removed = removed + remove(KEYS[i], KEYS[i + 1])
    end
  end
  return {0, removed}
end
local problem = read_config()
if problem then
  return problem
end
local before = read_all()
if not before and count == 0 then
  -- A value that is no integer.
  return {0, remove(value_key, log_key)}
end
local exact = settle('')
if exact == nil then
  return foreign
end
local deficit = find_deficit(exact, false, math.huge)
if not deficit then
  return foreign
end
if deficit ~= 0 or value ~= rate then
  return {0, 0}
end
return {0, remove(value_key, log_key)}
