-- The usual grant, before any function is made: equal requests that are all granted, on the first attempt, in a lane
-- that has called before, under the parameters in force.
if record and last < number and stored == wanted and #requests == 22 and
    (action or '') == '' and (abandon or '') == '' and
    (not start and permits * count <= free or
    start and count == 1 and permits <= limit and start - now <= min(longest * 1000, max_delay)) then
  local p, starts = permits * count, start
  free = free - p
  do
--> take
  end
  record = pack(RECORD, number, now, p, x, free, y)
  if write_state then
    write_state(record)
    return record
  end
  local now_ms = (now - now % 1000) / 1000
  local must_end = max(now_ms + kept, ceil(ends / 1000))
  local must_expire = kept > 0 and deadline < must_end
  if must_expire then
    deadline = is_told and 0 or must_end + MARGIN
  end
  call('HSET', KEYS[1], 's', pack(layout, deadline, kept, x, y, z) .. tail, lane, record)
  if must_expire then
    call('PEXPIRE', KEYS[1], format('%d', must_end + MARGIN - now_ms))
  end
  return starts and record .. pack('<I7', starts) or record
end
