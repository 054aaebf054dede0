-- Decides what one limiter is asked for: permits, a refund, what it has. Twin: src/policy/frame.rs.
if action == 'peek' then
  local p, free = min(requests - 0, limit), available()
  local us = p > free and max(1, wait(p)) or 0
  return {0, free, limit, us, requests - 0 > limit and 1 or 0, wanted}
elseif action == 'give' then
  local m, f = string.match(requests, '^(%d+)/?(%d*)$')
  credit = give(tonumber(m), tonumber(f) or 0, permits - 0)
  reply = {0, credit}
elseif not is_change then
  -- Of a call that was decided before, what it was granted is granted again.
  local free = available()
  if is_replay then
    reply, free = {0, at, now, 1 + total, free, given, given_f}, total
  else
    reply = {0, now, now, 0, 0, 0, 0}
  end
  if decide then
    granted = decide(free, is_replay)
  else
    local taken, sum, exact, blocked_wait = 0, 0, 0, 0
    for i = 1, #requests, 15 do
      local p, longest, count = struct.unpack('<I4I7I4', requests, i)
      local fit = sum == 0 and min(count, floor(free / p)) or 0
      answer(fit, 0, 0)
      free, granted, count = free - fit * p, granted + fit * p, count - fit
      if count > 0 and p > limit then
        answer(count, 5, 0)
      elseif count > 0 then
        if not is_replay and granted > taken then
          take(granted - taken)
          taken = granted
        end
        while count > 0 do
          local at_least, us = sum + p > limit and 1 or 0, blocked_wait
          if sum == 0 or sum < limit and exact < EXACT_WAITS then
            -- Of a repeated call, permits may be available by now for what was denied the first time.
            local possible = min(sum + p, limit)
            us = (is_replay and possible <= available()) and 1 or max(1, wait(possible))
            exact = exact + (sum > 0 and 1 or 0)
          else
            at_least = 1
          end
          local n = count
          -- With grants to follow it did not wait the first time, or it would have blocked them.
          if us <= longest * 1000 and not (is_replay and free > 0) then
            n = (sum < limit and exact < EXACT_WAITS) and 1 or count
            sum, blocked_wait = sum + n * p, us
            answer(n, 3 + at_least, us)
          else
            answer(n, 1 + at_least, us)
          end
          count = count - n
        end
      end
    end
    if not is_replay and granted > taken then
      take(granted - taken)
    end
  end
  if is_replay then
    return reply
  end
  reply[5] = decide and available() or free
  reply[6], reply[7] = mark()
end

