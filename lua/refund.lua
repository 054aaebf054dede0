-- Returns permits of one grant, exactly: lowers its entry to the permits that should be left.
-- Twin: src/store/calls/give_back.rs.
--
-- KEYS   the five of a limiter: hash, value, log, the client's value, the client's log
-- ARGV   1 the first 17 bytes of the grant's entry
--        2 the date of the entry
--        3 the number of permits that it was written with
--        4 the number of permits returned so far, including these
-- reply  {0, permits credited, permits left in the entry}
--        or {-1, …}, {-2, …}: see part/config.lua
if not (fields[1] or fields[2] or fields[3] or fields[4]) and call('EXISTS', KEYS[1]) == 0 then
  return {0, 0, 0}
end
local problem = read_config(s)
if problem then
  return problem
end
local value = integer(call('GET', s.value_key))

read_id(s, ARGV[1])
local parts, left = {}, 0
local dated = call('ZRANGEBYSCORE', s.log_key, ARGV[2], ARGV[2])
for i = 1, #dated do
  if part_number(s, dated[i]) then
    parts[#parts + 1] = dated[i]
    left = left + permits_of(dated[i])
  end
end
if not parts[1] then
  return {0, 0, 0}
end
local credit = left - math.min(left, math.max(0, tonumber(ARGV[3]) - tonumber(ARGV[4])))
local raised = value
if value and credit > 0 then
  local most = s.rate
  if call('ZCARD', s.log_key) <= SHORT_LOG then
    local all = call('ZRANGE', s.log_key, '0', '-1')
    for i = 1, #all do
      most = most - (permits_of(all[i]) or 0)
    end
    most = most + credit
  end
  raised = math.max(value, math.min(value + credit, most))
end

-- Write.
-- The last part first.
table.sort(parts, function(a, b)
  local m, n = part_number(s, a), part_number(s, b)
  return m > n or m == n and permits_of(a) > permits_of(b)
end)
local rest = credit
for i = 1, #parts do
  local p = permits_of(parts[i])
  local taken = math.min(p, rest)
  rest = rest - taken
  if taken > 0 then
    call('ZREM', s.log_key, parts[i])
    if taken < p then
      call('ZADD', s.log_key, ARGV[2], with_permits(parts[i], p - taken))
    end
  end
end
if raised ~= value then
  call('INCRBY', s.value_key, int(raised - value))
end
refresh_lifetime(s)
return {0, credit, left - credit}
