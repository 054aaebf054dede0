-- Decides requests that take from one or several limiters, one request after the other: each gets what it asks for from
-- all of them, or nothing from any. Twin: src/policy/decide.rs.
local states = {}
local reply = {0, now, states}

local function answer(count, ...)
  if count > 0 then
    reply[#reply + 1] = count
    for i = 1, select('#', ...) do
      reply[#reply + 1] = select(i, ...)
    end
  end
end

for _, it in ipairs(limits) do
  it.queued, it.granted = 0, 0
end
local waits, exact, blocked_us, blocked_by = false, 0, 0, 0
local first = limits[1]
for k = 8, #first.requests, 15 do
  local p, longest, count = numbers('<I4I7I4', first.requests, k)
  longest = longest * 1000
  -- A queue by itself grants requests with their starts, up to its longest delay.
  local delay = schedule and min(longest, max_delay) or 0
  while schedule and count > 0 and not waits do
    local n = schedule(first, answer, p, count, delay)
    if n == 0 then
      break
    end
    first.granted, count = first.granted + n * p, count - n
  end
  local fit, exceeds, has_rest
  repeat
    -- Of a call that was decided before, what it was granted is granted again: each limiter that still has the record
    -- has that much.
    fit, exceeds, has_rest = (waits or schedule) and 0 or count, false, false
    for _, it in ipairs(limits) do
      it.p = numbers('<I4', it.requests, k)
      if not is_replay then
        fit = min(fit, floor(it.available() / it.p), it.is_queue and 1 or fit)
      elseif it.is_replay then
        fit, has_rest = min(fit, floor(it.rest / it.p)), has_rest or it.rest > 0
      end
      exceeds = exceeds or it.p > it.limit
    end
    for i = 1, fit > 0 and #limits or 0 do
      local it = limits[i]
      if not is_replay then
        it.take(fit * it.p)
      elseif it.is_replay then
        it.rest = it.rest - fit * it.p
      end
      it.granted = it.granted + fit * it.p
    end
    answer(fit, 0, 0)
    count = count - fit
  until fit == 0
  if exceeds then
    answer(count, 5, 0)
    count = 0
  end
  while count > 0 do
    local is_exact, at_least, us, by = exact < 16, true, blocked_us, blocked_by
    for _, it in ipairs(limits) do
      is_exact = is_exact and it.queued < it.limit
    end
    if is_exact then
      -- How long all of them together take, and whether one of them may take longer.
      at_least, us, by, exact = false, 0, 0, exact + (waits and 1 or 0)
      for i, it in ipairs(limits) do
        local needed, free, wait = it.queued + it.p, it.available(), 0
        -- In a queue a request of any size starts behind the others, whom other limiters may delay.
        at_least = at_least or needed > it.limit or it.is_queue and it.queued > 0 and not schedule
        it.is_short = it.is_short or it.p > free
        local possible = min(needed, it.limit)
        if it.is_queue then
          wait = it.wait(possible, min(it.queued, it.limit))
        elseif possible > free then
          wait = max(1, it.wait(possible))
        end
        if wait > us then
          us, by = wait, i - 1
        end
      end
    end
    local n, kind, until_granted = count, by * 10 + (at_least and 2 or 1), max(1, us - delay)
    -- With grants to follow it did not wait the first time, or it would have blocked them.
    if until_granted <= longest - delay and not has_rest then
      n, kind = is_exact and 1 or count, kind + 2
      waits, blocked_us, blocked_by = true, us, by
      for _, it in ipairs(limits) do
        it.queued = it.queued + n * it.p
      end
    end
    answer(n, kind, until_granted)
    count = count - n
  end
end

-- Write.
for i, it in ipairs(limits) do
  if not is_replay then
    local mark, fraction = it.mark()
    states[i] = {it.available(), mark, fraction, now, 0, it.gave, it.notes}
    it.write(it.granted, it.is_short)
  elseif it.is_replay then
    states[i] = {it.available(), it.given, it.given_f, it.at, 1 + it.total, 0, it.notes}
    it.write()
  else
    -- A limiter that has lost the record has nothing to give back.
    states[i] = {it.available(), 0, 0, now, 0, it.gave, it.notes}
  end
end
return reply
