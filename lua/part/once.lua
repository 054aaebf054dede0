-- The earlier grant of a call whose id says what it is for: the answer is what is left of it, whatever the call
-- asks for, and nothing is written. The whole log is read. Twin: src/store/memory/attempt.rs.
--
-- Reads  call, int, integer, permits_of; read_config (part/config.lua); entry (part/arguments.lua), now_text
-- reply  as that of acquire.lua, with the kind 8: ms is the permits of the earlier grant; behind it is its date
if not read_config(s) then
  local left, cutoff = integer(call('GET', s.value_key)) or 0, int(now_text - s.interval)
  for rank = call('ZCOUNT', s.log_key, '-inf', cutoff), call('ZCARD', s.log_key) - 1, 1000 do
    for _, member in ipairs(call('ZRANGE', s.log_key, rank, rank + 999)) do
      if #member == 21 and string.sub(member, 1, 17) == string.sub(entry, 1, 17) and permits_of(member) > 0 then
        local date = math.min(tonumber(call('ZSCORE', s.log_key, member)), MAX_EXACT)
        return {s.per_client, left, s.rate, s.interval, s.keep_alive, now_text - 0, 1, 8, permits_of(member), date}
      end
    end
  end
end
