-- The usual case with as few commands and as little Lua as possible: the hash is whole and has the
-- rate that the client knows, nothing has expired, all requests fit, the value needs no look at
-- the log. All else goes on below; what is read here is kept for it.
local find = string.find
local seen_text, total_text = ARGV[3], ARGV[4]
local raw -- the value as text
if fields[1] == seen_text and (ARGV[7] or '') == '' then
  local value_key, log_key
  if fields[3] == '0' then
    value_key, log_key = KEYS[2], KEYS[3]
  elseif fields[3] == '1' then
    value_key, log_key = KEYS[4], KEYS[5]
  end
  local I, keep = fields[2], fields[4] or '0'
  -- Up to 15 digits: exact, and within 2^53.
  if value_key and I and #I < 16 and find(I, '^[1-9]%d*$') and
      (keep == '0' or #keep < 16 and find(keep, '^[1-9]%d*$')) then
    raw = call('GET', value_key)
    local v, R = tonumber(raw), tonumber(seen_text)
    if v and R and v >= total_text - 0 and v <= R and #raw < 16 and find(raw, '^[1-9]%d*$') and
        #ARGV[2] == 21 and
        call('ZCOUNT', log_key, '0', string.format('%.0f', now_text - I)) == 0 then
      -- Entries of other lengths are for the slow path to tell; so is an empty log.
      local oldest = call('ZRANGE', log_key, '0', '7')
      local usual = oldest[1] or v == R
      for i = 1, #oldest do
        usual = usual and (#oldest[i] == 21 or #oldest[i] == 13)
      end
      local overtaken = not usual
      -- One permit: the entry of an attempt that has overtaken this one would be the same member,
      -- which ZADD finds. More permits may have been lowered since.
      if usual and total_text ~= '1' then
        local bound = ARGV[5] or ''
        local later = call('ZRANGEBYSCORE', log_key, bound == '' and now_text or bound, '+inf')
        local id = string.sub(ARGV[2], 2, 15)
        for i = 1, #later do
          overtaken = overtaken or find(later[i], id, 2, true) == 2
        end
      end
      if not overtaken and call('ZADD', log_key, 'NX', now_text, ARGV[2]) == 1 then
        v = call('DECRBY', value_key, total_text)
        if keep ~= '0' then
          call('PEXPIRE', KEYS[1], keep)
          call('PEXPIRE', value_key, keep)
          call('PEXPIRE', log_key, keep)
          return {fields[3] - 0, v, R, I - 0, keep - 0, now_text - 0}
        end
        local ms = call('PTTL', KEYS[1])
        if ms > 0 then
          ms = string.format('%.0f', ms)
          call('PEXPIRE', value_key, ms)
          call('PEXPIRE', log_key, ms)
        end
        if ARGV[1] == '' then
          return {fields[3] - 0, v, R, I - 0, 0, now_text - 0}
        end
        return {fields[3] == '1' and 1 or 0, v, R, I - 0}
      end
    end
  end
end
