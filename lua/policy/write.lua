-- Writes the limiter with so many permits granted, or given back, unless nothing has changed. A denial writes nothing,
-- unless time must begin for a limiter that starts with too few permits, or anew because the clock has gone back. A call
-- without requests leaves its record in any case, so that what it abandons is stale if it comes later.
local function write(granted, has_denied)
  if is_replay then
    -- Attempts before this one are stale from now on.
    if last < number then
      call('HSET', lanes_key, lane, pack('<I7', number) .. string.sub(record, 8))
    end
    return
  end
  local has_record = granted > 0 or gave or lane ~= '' and #requests == 7
  local is_used = was_used or granted > 0 or has_denied
  if not (has_record or has_changed or is_change or is_behind or is_used and not was_used) then
    return
  end
  local must_end = 0
  if is_used then
    take(0)
    must_end = ceil(ends / 1000)
  end
  local fields = {}
  if stored ~= wanted then
    fields = {'c', wanted}
  end
  if has_record then
    fields[#fields + 1] = lane
    fields[#fields + 1] = pack(RECORD, number, now, granted, x, version or free, y)
  end
  if is_change then
    kept = numbers('<I7', requests)
  end
  local now_ms = floor(now / 1000)
  must_end = max(now_ms + kept, must_end)
  local must_expire = kept > 0 and (deadline < must_end or is_change)
  if must_expire then
    deadline = is_told and 0 or must_end + MARGIN
  end
  if is_foreign then
    write_state(fields[2])
  else
    fields[#fields + 1] = 's'
    fields[#fields + 1] = is_used and pack(layout, deadline, kept, x, y, z) .. tail or pack('<I6I6', deadline, kept)
    call('HSET', key, unpack(fields))
    if must_expire then
      call('PEXPIRE', key, format('%d', must_end + MARGIN - now_ms))
    elseif is_change then
      call('PERSIST', key)
    end
  end
  if record or not has_record or call('HLEN', lanes_key) <= 32 then
    return
  end
  -- Remove the records of lanes that made no call for so long that no attempt of it can follow.
  local swept = tonumber(call('HGET', lanes_key, 'g') or '')
  if not swept or now_ms - swept >= HORIZON then
    local all = call('HGETALL', lanes_key)
    for i = 1, #all, 2 do
      if string.sub(all[i], 1, 1) == '@' and #all[i + 1] == record_size then
        local _, t = numbers('<I7I7', all[i + 1])
        if now - t > HORIZON * 1000 then
          call('HDEL', lanes_key, all[i])
        end
      end
    end
    call('HSET', lanes_key, 'g', format('%d', now_ms))
  end
end

-- The limiter as one of those that are decided together.
local it = {
  limit = limit, requests = requests, is_queue = start, write = write, wait = wait, take = take,
  gave = gave or 0, notes = (has_changed and 1 or 0) + (at > now and 2 or 0),
  is_replay = is_replay, at = at, total = total, rest = total, given = given, given_f = has_fraction and given_f or 0,
  available = function()
    return free
  end,
  mark = function()
    return x, has_fraction and y or 0
  end
}
