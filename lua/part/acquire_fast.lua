-- The usual calls, with as few commands and as little Lua as possible: no function is made before
-- they are over. A second copy of the rules, because of what it saves. Server time of a call for one
-- permit on Redis 7.0.15, in microseconds (INFO commandstats, medians of 100 alternating batches of
-- 500 calls, each of another limiter):
--                                            with it   without   Redisson 4.7.0's script
--   granted, nothing has expired                 8.6      36.0       9.8
--   granted, an entry has expired                9.5      35.5      11.1
--     and that was not expected                 10.1
--   refused by a log of five entries            10.7      33.2       9.0
--
-- It decides if the hash has the very rate that the client last saw; value and log agree as far as
-- this call looks; and either all requests fit, or they are alike and do not wait. It decides as the
-- parts below do, which see all other calls, with nothing written yet. A call that takes a lease is one
-- of the usual ones: without it that would cost 36 microseconds.
--
-- Reads  call, fields (part/hash.lua), now_text (part/clock.lua), part/limits.lua, KEYS, ARGV
-- Sets   seen_text, total_text: arguments 3 and 5; raw: the value as text, nil if it was not read
local seen_text, total_text = ARGV[3], ARGV[5] or ''
if total_text == '' then
  total_text = '1'
end
local raw
do
  local find, byte, format = string.find, string.byte, string.format
  local value_key, log_key, I, keep, v, R, w
  -- What the client saw was read and checked: equal texts need not be.
  local date_text = now_text -- of what is granted: the end of a lease's hold
  local plain = fields[1] and fields[2] and fields[3] and #ARGV[2] == 21 and
    fields[3] .. ' ' .. fields[1] .. ' ' .. fields[2] .. ' ' .. (fields[4] or '0') == seen_text
  if plain and (ARGV[8] or '') ~= '' then
    local hold = string.match(ARGV[8], '^0 (%d+) %- n$')
    plain = hold
    date_text = hold and format('%.0f', now_text + hold)
  end
  if plain then
    I, keep = fields[2], fields[4] or '0'
    value_key, log_key = KEYS[2], KEYS[3]
    if fields[3] ~= '0' and KEYS[4] then
      value_key, log_key = KEYS[4], KEYS[5]
    end
    raw = call('GET', value_key)
    v, R, w = tonumber(raw), fields[1] - 0, total_text - 0
    plain = v and v >= 0 and v <= R and #raw < 16
  end

  -- What has expired, and the oldest entry behind it. Foreign entries are for the parts below. To read
  -- two entries costs 0.8 microseconds more than one, to read the second by a command of its own 1.4.
  local cutoff, gone, credit, empty, oldest, oldest_score = nil, 0, 0, false, nil, nil
  if plain then
    local both = ARGV[4] == '1'
    local first = call('ZRANGE', log_key, '0', both and '1' or '0', 'WITHSCORES')
    cutoff = now_text - I
    oldest, oldest_score = first[1], first[2] and first[2] - 0
    if not oldest then
      empty, plain = true, v == R
    elseif oldest_score <= cutoff then
      local expired = {oldest}
      if both then
        oldest, oldest_score = first[3], first[4] and first[4] - 0
      else
        first = call('ZRANGE', log_key, '1', '1', 'WITHSCORES')
        oldest, oldest_score = first[1], first[2] and first[2] - 0
      end
      if oldest and oldest_score <= cutoff then
        -- Two or more. Up to a step of those that one call drops.
        expired = call('ZRANGEBYSCORE', log_key, '-inf', format('%.0f', cutoff), 'LIMIT', '0', DROP_STEP)
        oldest, oldest_score = call('ZRANGE', log_key, #expired, #expired)[1], nil
      end
      gone = #expired
      plain = gone < DROP_STEP and (raw == '0' or find(raw, '^[1-9]%d*$'))
      for i = 1, gone do
        local entry = expired[i]
        if #entry ~= 21 or byte(entry) ~= 16 then
          plain = false
          break
        end
        local a, b, c, d = byte(entry, 18, 21)
        credit = credit + a + b * 256 + c * 65536 + d * 16777216
      end
      empty = not oldest
      if empty then
        v, plain = R, plain and credit > 0
      else
        plain = plain and v <= R - credit
        v = v + credit
      end
    end
    plain = plain and (empty or #oldest == 21 and byte(oldest) == 16)
  end

  -- What does not fit: `refused` requests, after `wait` ms.
  local fit, refused, wait, is_cut, entry = 0, 0, 0, false, ARGV[2]
  if plain and w > v then
    local p, max_wait, n = w, 0, 1
    if (ARGV[7] or '') ~= '' then
      p, max_wait, n = struct.unpack('<I4I7I4', ARGV[7])
      plain = #ARGV[7] == 15
    end
    plain = plain and not empty and p <= R and max_wait == 0 and
      (raw == '0' or find(raw, '^[1-9]%d*$'))
    fit = math.floor(v / p)
    refused, w = n - fit, fit * p
    if plain then
      -- A short log is read to its end: its sum must agree with the value.
      local entries = call('ZRANGE', log_key, gone, gone + SHORT_LOG)
      local short = #entries <= SHORT_LOG
      is_cut = not short
      local needed, sum, found = p - (v - w), 0, nil
      for i = 1, math.min(#entries, SHORT_LOG) do
        local other = entries[i]
        if #other ~= 21 or byte(other) ~= 16 or other == entry then
          plain = false
          break
        end
        local a, b, c, d = byte(other, 18, 21)
        sum = sum + a + b * 256 + c * 65536 + d * 16777216
        if sum >= needed and not found then
          found = other
          if not short then
            break
          end
        end
      end
      plain = plain and found and (not short or sum == R - v)
      if plain then
        local score = found == oldest and oldest_score or
          tonumber(call('ZSCORE', log_key, found))
        wait = math.max(1, math.min(math.ceil(score + I - now_text), MAX_EXACT))
        if w > 0 then
          plain = score < date_text - 0
          entry = string.sub(entry, 1, 17) .. struct.pack('<I4', w)
        end
      end
    end
  end

  -- Whether this call's own retry was there first. A single permit that is all there is to write
  -- would be the same entry, which ZADD finds; more permits may have been lowered since.
  if plain and total_text ~= '1' then
    local bound = ARGV[6] or ''
    bound = bound == '' and date_text or bound
    local later = call('ZRANGEBYSCORE', log_key, bound, '+inf', 'LIMIT', '0', '65')
    if #later == 65 then
      -- They are leases of others. If that costs less (ten entries are read in the time of one lookup),
      -- the entry is looked up with each number of permits that it may have.
      plain = total_text * 10 < call('ZCOUNT', log_key, bound, '+inf')
      for p = 1, plain and total_text or 0 do
        plain = plain and not call('ZSCORE', log_key, string.sub(entry, 1, 17) .. struct.pack('<I4', p))
      end
    else
      local id = string.sub(entry, 2, 15)
      for i = 1, #later do
        plain = plain and find(later[i], id, 2, true) ~= 2
      end
    end
  elseif plain and is_cut then
    plain = not call('ZSCORE', log_key, entry)
  end

  -- Writes. Up to the entry they can still be refused, and then leave no trace.
  if plain and gone == 0 and refused == 0 then
    -- This fails if the value is no integer.
    v = redis.pcall('DECRBY', value_key, total_text)
    plain = type(v) == 'number'
    if plain and call('ZADD', log_key, 'NX', date_text, entry) == 0 then
      call('INCRBY', value_key, total_text)
      plain = false
    end
  elseif plain then
    -- A log that the drop empties loses its time to live, so it is emptied before the entry comes.
    if empty then
      call('ZREMRANGEBYRANK', log_key, '0', gone - 1)
    end
    -- NX: if the same member has expired, ZADD would move it, and the drop take out a live one.
    if w > 0 then
      plain = call('ZADD', log_key, 'NX', date_text, entry) == 1
    end
    if plain and gone > 0 and not empty then
      call('ZREMRANGEBYRANK', log_key, '0', gone - 1)
    end
    if plain and gone > 0 and (credit > 0 or v - raw ~= 0) then
      v = v - w
      call('SET', value_key, format('%.0f', v))
    elseif plain and w > 0 then
      v = call('DECRBY', value_key, format('%.0f', w))
    end
  end
  if plain then
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
    -- The rate is the one that the client knows.
    if refused == 0 then
      return ARGV[1] ~= '' and v or {v, now_text - 0}
    end
    return {v, now_text - 0, fit, refused, wait}
  end
end
