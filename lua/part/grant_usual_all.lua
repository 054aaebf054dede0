-- The usual grant from several limiters: what part/grant_usual.lua is to one, with the same conditions for each.
-- Nothing is written unless all of them have all the permits.
--
-- Reads  call, fields (part/hash.lua), the arguments (part/arguments_all.lua), DROP_LIMIT
-- Sets   all_fields: the hash of each limiter
local all_fields = {fields}
do
  local byte, format, plain, found = string.byte, string.format, is_again ~= '1', {}
  for i = 1, #names / 5 do
    local k, a = i * 5 - 5, i * 6 - 2
    local f = all_fields[i] or
      plain and call('HMGET', names[k + 1], 'rate', 'interval', 'type', 'keepAliveTime')
    all_fields[i] = f
    plain = plain and f[1] and f[2] and f[3] and #ARGV[a + 1] == 21 and
      f[3] .. ' ' .. f[1] .. ' ' .. f[2] .. ' ' .. (f[4] or '0') == ARGV[a + 3] and
      -- An audit sums the log, as the parts below do.
      ARGV[a + 5] == '0'
    if plain then
      local mode = f[3] ~= '0' and 2 or 0
      local hash_key, value_key, log_key = names[k + 1], names[k + 2 + mode], names[k + 3 + mode]
      local member, w, raw = ARGV[a + 1], ARGV[a + 2], call('GET', value_key)
      local v, R, cutoff, gone, credit, next = tonumber(raw), f[1] - 0, now_text - f[2], 0, 0, nil
      plain = v and v <= R and #raw < 16 and (raw == '0' or string.find(raw, '^[1-9]%d*$'))
      if plain then
        local expired =
          call('ZRANGEBYSCORE', log_key, '-inf', format('%.0f', cutoff), 'LIMIT', '0', DROP_LIMIT)
        gone = #expired
        next = call('ZRANGE', log_key, gone, gone)[1]
        plain = gone < DROP_LIMIT
        for n = 1, gone do
          local p, q, r, s = byte(expired[n], 18, 21)
          plain = plain and #expired[n] == 21 and byte(expired[n]) == 16
          credit = credit + (s and p + q * 256 + r * 65536 + s * 16777216 or 0)
        end
        plain = plain and (gone == 0 or next and v <= R - credit or not next and credit > 0 and credit <= R)
        v = gone == 0 and v or next and v + credit or R
        plain = plain and v - w >= 0 and
          (next and #next == 21 and byte(next) == 16 or not next and v == R)
      end
      -- Whether this call's own retry came first; its entry may have been lowered since.
      if plain and w == '1' then
        plain = not call('ZSCORE', log_key, member)
      elseif plain then
        local from = after ~= '' and '(' .. after or now_text
        local later = call('ZRANGEBYSCORE', log_key, from, '+inf', 'LIMIT', '0', '65')
        plain = #later < 65
        for n = 1, #later do
          plain = plain and string.find(later[n], string.sub(member, 2, 15), 2, true) ~= 2
        end
      end
      found[i] = {hash_key, value_key, log_key, member, w, v, gone, credit, f[4] or '0'}
    end
  end

  -- Write. A log emptied by the drop loses its time to live, so empty it before adding the entry.
  local reply = {now_text - 0}
  for i = 1, plain and #found or 0 do
    local hash_key, value_key, log_key, member, w, v, gone, credit, keep_alive = unpack(found[i])
    if gone > 0 then
      call('ZREMRANGEBYRANK', log_key, '0', gone - 1)
    end
    call('ZADD', log_key, now_text, member)
    if credit > 0 then
      call('SET', value_key, format('%.0f', v - w))
    else
      call('DECRBY', value_key, w)
    end
    local ms = keep_alive - 0
    if ms > 0 then
      call('PEXPIRE', hash_key, keep_alive)
    else
      ms = call('PTTL', hash_key)
    end
    if ms > 0 then
      call('PEXPIRE', value_key, format('%.0f', ms))
      call('PEXPIRE', log_key, format('%.0f', ms))
    end
    reply[i + 1] = v - w
  end
  if plain then
    return reply
  end
end
