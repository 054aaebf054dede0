-- The usual grant, with as few commands and as little Lua as possible: no function is created before it is done.
-- Server time of a call for one permit on Redis 7.0.15, in microseconds (INFO commandstats), with this part, without
-- it, and by Redisson 4.7.0's script: nothing has expired 8.6, 36, 9.8; an entry has expired 9.5, 36, 11.1.
--
-- It grants all requests if the hash has exactly the rate that the client last saw, value and log agree as far
-- as this call looks, and all requests fit. It grants as the parts below do, which decide all other calls, with
-- nothing written yet.
--
-- Reads  call, fields (part/hash.lua), the arguments (part/arguments.lua), DROP_LIMIT, KEYS
if fields[1] and fields[2] and fields[3] and #entry == 21 and not reserves and
    fields[3] .. ' ' .. fields[1] .. ' ' .. fields[2] .. ' ' .. (fields[4] or '0') == seen then
  local byte, format = string.byte, string.format
  local value_key, log_key = KEYS[2], KEYS[3]
  if fields[3] ~= '0' and KEYS[4] then
    value_key, log_key = KEYS[4], KEYS[5]
  end
  local raw, w, date = call('GET', value_key), (total or '') ~= '' and total or '1', now_text
  if (hold or '') ~= '' then
    date = format('%.0f', now_text + hold)
  end
  local v, R, cutoff = tonumber(raw), fields[1] - 0, now_text - fields[2]
  local plain = v and v <= R and #raw < 16 and (raw == '0' or string.find(raw, '^[1-9]%d*$'))

  -- The expired entries, and the oldest one after them, which shows whether a foreign entry is live. Reading two
  -- entries costs 0.8 microseconds more than one, and reading the second by its own command 1.4.
  local gone, credit, empty = 0, 0, false
  if plain then
    local oldest = call('ZRANGE', log_key, '0', expects_expired == '1' and '1' or '0', 'WITHSCORES')
    local next, at = oldest[1], oldest[2]
    if at and at - cutoff <= 0 then
      local expired = {next}
      next, at = oldest[3], oldest[4]
      if expects_expired ~= '1' then
        oldest = call('ZRANGE', log_key, '1', '1', 'WITHSCORES')
        next, at = oldest[1], oldest[2]
      end
      if at and at - cutoff <= 0 then
        expired =
          call('ZRANGEBYSCORE', log_key, '-inf', format('%.0f', cutoff), 'LIMIT', '0', DROP_LIMIT)
        next = call('ZRANGE', log_key, #expired, #expired)[1]
      end
      gone = #expired
      plain = gone < DROP_LIMIT
      for i = 1, gone do
        local a, b, c, d = byte(expired[i], 18, 21)
        plain = plain and #expired[i] == 21 and byte(expired[i]) == 16
        credit = credit + (d and a + b * 256 + c * 65536 + d * 16777216 or 0)
      end
      plain = plain and (next and v <= R - credit or not next and credit > 0 and credit <= R)
      v = next and v + credit or R
    end
    empty = not next
    local least = headroom and math.ceil(R * headroom) or 0
    plain = plain and v - w >= least and (next and #next == 21 and byte(next) == 16 or empty and v == R)
  end

  -- Whether this call's own retry came first. For a single permit its entry would be the same one, which ZADD
  -- detects; an entry for more permits may have been lowered since.
  if plain and w ~= '1' then
    local from = (after or '') ~= '' and '(' .. after or date
    local later = call('ZRANGEBYSCORE', log_key, from, '+inf', 'LIMIT', '0', '65')
    plain = #later < 65
    for i = 1, #later do
      plain = plain and string.find(later[i], string.sub(entry, 2, 15), 2, true) ~= 2
    end
  end

  -- Write. A log emptied by the drop loses its time to live, so empty it before adding the entry.
  if plain and empty and gone > 0 then
    call('ZREMRANGEBYRANK', log_key, '0', gone - 1)
  end
  -- NX: the member may already be there, and may even have expired.
  if plain and call('ZADD', log_key, 'NX', date, entry) == 1 then
    if gone > 0 and not empty then
      call('ZREMRANGEBYRANK', log_key, '0', gone - 1)
    end
    if credit > 0 then
      v = v - w
      call('SET', value_key, format('%.0f', v))
    else
      v = call('DECRBY', value_key, w)
    end
    local ms = (fields[4] or '0') - 0
    if ms > 0 then
      call('PEXPIRE', KEYS[1], fields[4])
    else
      ms = call('PTTL', KEYS[1])
    end
    if ms > 0 then
      call('PEXPIRE', value_key, format('%.0f', ms))
      call('PEXPIRE', log_key, format('%.0f', ms))
    end
    return ARGV[1] ~= '' and v or {v, now_text - 0}
  end
end
