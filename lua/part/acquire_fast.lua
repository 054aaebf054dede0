-- The usual cases, with as few commands and as little Lua as possible (no function is made before
-- they are over: each costs a tenth of a microsecond). The hash is whole and has the rate that the
-- client knows; value and log agree as far as this call looks; and either all requests fit, or
-- they are alike and do not wait. All else goes on below, with nothing written yet. Whatever is
-- decided here would be decided the same there.
local seen_text, total_text = ARGV[3], ARGV[4]
local raw -- the value as text
do
  local find, byte, format = string.find, string.byte, string.format
  local value_key, log_key, plain
  local I, keep = fields[2], fields[4] or '0'
  if fields[1] and fields[3] and fields[3] .. fields[1] == seen_text and (ARGV[7] or '') == '' and #ARGV[2] == 21 then
    if fields[3] == '0' then
      value_key, log_key = KEYS[2], KEYS[3]
    elseif fields[3] == '1' then
      value_key, log_key = KEYS[4], KEYS[5]
    end
    -- Up to 15 digits: exact, and within 2^53.
    plain = value_key and I and #I < 16 and find(I, '^[1-9]%d*$') and
      (keep == '0' or #keep < 16 and find(keep, '^[1-9]%d*$'))
  end

  local v, R, w
  if plain then
    raw = call('GET', value_key)
    v, R, w = tonumber(raw), tonumber(fields[1]), total_text - 0
    plain = v and R and v <= R and #raw < 16 and (raw == '0' or find(raw, '^[1-9]%d*$'))
  end

  -- What has expired, and the oldest entries behind it: foreign ones are not told here.
  local edge, gone, oldest, credit, left = nil, 0, nil, 0, nil
  if plain then
    edge = format('%.0f', now_text - I)
    gone = call('ZCOUNT', log_key, '0', edge)
    plain = gone < 500
  end
  if plain then
    oldest = call('ZRANGE', log_key, '0', gone == 0 and '7' or format('%.0f', gone + 7))
    for i = 1, #oldest do
      local entry = oldest[i]
      if #entry ~= 21 or byte(entry) ~= 16 then
        plain = false
        break
      end
      if i <= gone then
        local a, b, c, d = byte(entry, 18, 21)
        credit = credit + a + b * 256 + c * 65536 + d * 16777216
      end
    end
    if #oldest < gone + 8 then
      left = #oldest - gone
    end
    if left == 0 and credit > 0 then
      v = R
    elseif left == 0 then
      plain = plain and v == R
    else
      plain = plain and v <= R - credit
      v = v + credit
    end
  end
  -- The ranks are those of the expired and then the live only where no score is negative.
  local first
  if plain and (gone > 0 or w > v) and oldest[1] then
    first = tonumber(call('ZSCORE', log_key, oldest[1]))
    plain = first >= 0
  end

  -- What does not fit: so many requests, after so long.
  local fit, refused, wait, entry = 0, 0, 0, ARGV[2]
  if plain and w > v then
    local p, patience, n = w, 0, 1
    if (ARGV[6] or '') ~= '' then
      p, patience, n = struct.unpack('<I4I7I4', ARGV[6])
      plain = #ARGV[6] == 15
    end
    fit = math.floor(v / p)
    refused, w = n - fit, fit * p
    left = left or call('ZCARD', log_key) - gone
    if plain and p <= R and patience == 0 and left > 0 then
      -- Of a short log all is read: it must agree with the value.
      local short = left <= 64
      local entries, at, read = oldest, gone, #oldest
      if short and read < gone + left then
        entries = call('ZRANGE', log_key, format('%.0f', gone), '-1')
        at, read = 0, #entries
      end
      local needed, sum, found = p - (v - w), 0, nil
      while at < read and (short or not found) do
        at = at + 1
        local other = entries[at]
        if #other ~= 21 or byte(other) ~= 16 then
          plain = false
          break
        end
        local a, b, c, d = byte(other, 18, 21)
        sum = sum + a + b * 256 + c * 65536 + d * 16777216
        found = found or sum >= needed and other
      end
      plain = plain and found and (not short or sum == R - v)
      if plain then
        local score = first
        if found ~= oldest[1] then
          score = tonumber(call('ZSCORE', log_key, found))
        end
        wait = math.max(1, math.ceil(score + I - now_text))
        if w > 0 then
          plain = score < now_text - 0
          entry = string.sub(entry, 1, 17) .. struct.pack('<I4', w)
        end
      end
    else
      plain = false
    end
  end

  -- Whether this call's own retry was there first. A single permit that is all there is to write
  -- would be the same entry, which ZADD finds; more permits may have been lowered since.
  local alone = gone == 0 and refused == 0
  if plain and total_text == '1' then
    plain = alone or not call('ZSCORE', log_key, entry)
  elseif plain then
    local bound = ARGV[5] or ''
    local later = call('ZRANGEBYSCORE', log_key, bound == '' and now_text or bound, '+inf')
    local id = string.sub(entry, 2, 15)
    for i = 1, #later do
      plain = plain and find(later[i], id, 2, true) ~= 2
    end
  end

  if plain and alone then
    plain = call('ZADD', log_key, 'NX', now_text, entry) == 1
  elseif plain then
    if gone > 0 then
      call('ZREMRANGEBYSCORE', log_key, '0', edge)
    end
    if w > 0 then
      call('ZADD', log_key, now_text, entry)
    end
  end
  if plain then
    if gone > 0 and (credit > 0 or v - raw ~= 0) then
      v = v - w
      call('SET', value_key, format('%.0f', v))
    elseif w > 0 then
      v = call('DECRBY', value_key, refused > 0 and format('%.0f', w) or total_text)
    end
    if keep ~= '0' then
      call('PEXPIRE', KEYS[1], keep)
      call('PEXPIRE', value_key, keep)
      call('PEXPIRE', log_key, keep)
    else
      local ms = call('PTTL', KEYS[1])
      if ms > 0 then
        ms = format('%.0f', ms)
        call('PEXPIRE', value_key, ms)
        call('PEXPIRE', log_key, ms)
      end
    end
    local kind = fields[3] == '1' and 1 or 0
    if refused == 0 and keep == '0' and ARGV[1] ~= '' then
      return {kind, v, R, I - 0}
    elseif refused == 0 then
      return {kind, v, R, I - 0, keep - 0, now_text - 0}
    elseif w == 0 then
      return {kind, v, R, I - 0, keep - 0, now_text - 0, refused, 1, wait}
    end
    return {kind, v, R, I - 0, keep - 0, now_text - 0, fit, 0, 0, refused, 1, wait}
  end
end
