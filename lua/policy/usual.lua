-- Decides the usual grant before any function is made: equal requests that are all granted, on
-- the first attempt, in a lane that has called before, under the parameters in force. It grants as the files below do,
-- which decide all other calls, with nothing written yet. Without it a call takes the server twice as long.
--
-- Reads  read, name_x, name_y, name_z, kind, lane_field (policy/fields.lua)
if read[3] and read[1] == wanted and #requests == 15 and (action or '') == '' and (abandon or '') == '' then
  local last = tonumber(string.match(read[3], '^(%d+):%d+:%d+:%d+/?%d*$'))
  local text_x, text_y, text_z = read[4], read[5], read[6]
  local x, y, z, kept = tonumber(text_x), tonumber(text_y), tonumber(text_z), tonumber(read[2] or 60000)
  local p, longest, count = struct.unpack('<I4I7I4', requests)
  local a, b, c, d, e = string.match(wanted, '^%l1:(%d+),?(%d*),?(%d*),?(%d*),?(%d*)')
  -- What is left after the grant, negative if it is not decided here; its mark, with a fraction; the time until the
  -- state says nothing; a queue's start.
  local left, mark, fraction, ttl, start = -1, 0, 0, 0, nil
  -- A field that is not a number is for the files below to report.
  if not (last and last - number < 0 and x and y and z and kept and
      max(x, y, z, kept) < 9007199254740992 and string.find(text_x .. text_y .. text_z .. (read[2] or ''), '^%d+$')) then
    left = -1
  elseif kind == 'b' or kind == 'q' and count == 1 then
    local r, q, limit, behind = b - 0, c - 0, a - 0, 0
    if kind == 'q' then
      r, q, limit, behind = a - 0, b - 0, e - 0, 0 - d
    end
    local t, f, per, rest = max(x, now), x < now and 0 or y, floor(q / r), q % r
    local to_f = f + rest * p * count
    local to = t + per * p * count + floor(to_f / r)
    to_f = to_f % r
    if kind == 'b' and y < r and q * limit < 4503599627370496 then
      -- In r-ths of a microsecond, which are exact.
      left, mark = floor((q * limit - (to - now) * r - to_f) / q), z + p * count
      ttl = to + 1 - now + (d - limit < 0 and per * limit + floor(rest * limit / r) + 60000000 or 0)
      text_x, text_y, text_z = format('%d', to), format('%d', to_f), format('%d', mark)
    elseif kind == 'q' and y < r and p <= limit and z <= now then
      local start_f = f + rest * behind
      start = max(now, t + per * behind + floor(start_f / r) + (start_f % r > 0 and 1 or 0))
      local next_f = to_f + rest * behind
      local next = to + per * behind + floor(next_f / r) + (next_f % r > 0 and 1 or 0)
      if start - now <= min(longest * 1000, c - 0) then
        left, mark, fraction, ttl = next > now and 0 or limit, to, to_f, to + 1 - now
        text_x, text_y, text_z = format('%d', to), format('%d', to_f), format('%d', now)
      end
    end
  elseif kind == 'f' or kind == 'a' or kind == 'd' then
    local width = b
    -- A calendar's window is the middle one of the bounds, unless the clocks of client and server differ.
    if kind == 'd' then
      local from, to = string.match(bounds, '^%d+ (%d+) (%d+) ')
      width = from and now - from >= 0 and now - to < 0 and to - from or -1
    end
    if now < x and x - now <= 2 * width then
      left, mark, ttl = a - y - p * count, x, x - now
      text_y = format('%d', y + p * count)
      text_z = text_y
    end
  elseif kind == 's' and a * b < 4503599627370496 and x == now - now % b then
    left = floor((a * b - y * (b - now + x)) / b) - z - p * count
    mark, ttl, text_z = x, x + 2 * b - now, format('%d', z + p * count)
  elseif kind == 'i' and now >= x then
    local portions = floor((now - x) / c)
    local n = portions < 1 and y or max(y, min(a, y + min(portions, ceil(a / b)) * b))
    local l = x + portions * c
    left, mark = min(n, a - 0) - p * count, z + p * count
    n = n - p * count
    ttl = l + ceil((a - n) / b) * c - now + (d - a < 0 and ceil(a / b) * c + 60000000 or 0)
    text_x, text_y, text_z = format('%d', l), format('%d', n), format('%d', mark)
  end
  if left >= 0 then
    local record = format('%s:%d:%d:%d', number, now, p * count, mark)
    if fraction > 0 then
      record = record .. '/' .. format('%d', fraction)
    end
    call('HSET', KEYS[1], lane_field, record, name_x, text_x, name_y, text_y, name_z, text_z)
    if kept > 0 then
      call('PEXPIRE', KEYS[1], format('%d', max(kept, ceil(ttl / 1000))))
    end
    local reply = {0, now, now, 0, left, mark, fraction, count, 0, 0}
    if start then
      reply[8], reply[9], reply[10], reply[11], reply[12] = 1, 8, start, mark, fraction
    end
    return reply
  end
end
