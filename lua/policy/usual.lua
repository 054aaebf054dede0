-- The usual calls, before any function is made: equal requests, on the first attempt, under the parameters in force, that
-- are all granted in a lane that has called before, or all refused by a limiter that has been used.
if stored == wanted and #requests == 22 and (action or '') == '' and (abandon or '') == '' and
    (again or '') == '' and (not record or last < number and at <= now) and permits <= limit then
  local p, allowed, behind, us, fits = permits * count, 0, 0, nil, permits * count <= free
  if start then
    -- All are granted if the last of them starts in time.
    allowed, behind = min(longest * 1000, max_delay), p - permits
    do
--> wait
    end
    behind, fits = 0, p <= limit and us <= allowed
  end
  if record and p > 0 and fits then
    free = free - p
    do
--> take
    end
    record = pack(RECORD, number, now, p, x, version or free, y)
    if is_foreign then
      local own = record
--> write
--> record
      return record
    end
    local now_ms = (now - now % 1000) / 1000
    local must_end = now_ms + kept
    local must_expire = kept > 0 and (deadline < must_end or deadline * 1000 < ends)
    if must_expire then
      must_end = max(must_end, ceil(ends / 1000))
      deadline = is_told and 0 or must_end + MARGIN
    end
    call('HSET', key, 's', pack(layout, deadline, kept, x, y, z) .. tail, lane, record)
    if must_expire then
      call('PEXPIRE', key, format('%d', must_end + MARGIN - now_ms))
    end
    return start and record .. wanted or record
  elseif was_used and permits > free and not is_behind then
    p = permits
    do
--> wait
    end
    if us > longest * 1000 then
      return {0, now, {{free, x, has_fraction and y or 0, now, 0, 0, 0}}, count, 1, max(1, us - allowed)}
    end
  end
end
