-- Decides requests that take from several limiters with policies, one request after the other: each gets what it asks
-- for from all of them, or nothing from any. Reads all limiters, decides, and writes them all. Twin: src/policy/all.rs.
--
-- KEYS   the hash of each limiter
-- ARGV   for each limiter the eleven arguments of its own call, as head.lua has them. Lane, number, abandon, max_age
--        and time are the same for all, and so are the waits and counts of the requests
-- reply  {0, now, limits, outcomes …}: limits being {available, mark, its fraction} for each
--        limiter; an outcome being count, kind, wait in microseconds: the kinds of head.lua, plus 10 for each limiter
--        before the one that is to be waited for longest
--        or a failure of head.lua, with the hash's key as the fourth element
local time = ARGV[11]
if time == '' then
  local t = redis.call('TIME')
  time = string.format('%d', t[1] * 1000000 + t[2])
end

-- Read.
local limits, is_replay = {}, false
for i = 1, #KEYS do
  local own = {unpack(ARGV, i * 11 - 10, i * 11)}
  own[11] = time
  local it = open({KEYS[i]}, own)
  if it[1] then
    return {it[1], it[2] or 0, it[3] or '', KEYS[i]}
  end
  limits[i], it.queued, it.granted = it, 0, 0
  is_replay = is_replay or it.is_replay
end

-- Decide. Of a call that was decided before, what it was granted is granted again: each limiter that still has the
-- record has that much.
local floor, max, min, now = math.floor, math.max, math.min, limits[1].now
local states = {}
local reply = {0, now, states}

local function answer(count, kind, number)
  if count > 0 then
    local last = #reply
    reply[last + 1], reply[last + 2], reply[last + 3] = count, kind, number
  end
end

local waits, exact, blocked_us, blocked_by = false, 0, 0, 0
for k = 1, #limits[1].requests, 15 do
  local _, longest, count = struct.unpack('<I4I7I4', limits[1].requests, k)
  local fit, exceeds, has_rest
  repeat
    fit, exceeds, has_rest = waits and 0 or count, false, false
    for _, it in ipairs(limits) do
      it.p = struct.unpack('<I4', it.requests, k)
      if not is_replay then
        fit = min(fit, floor(it.available() / it.p), it.is_queue and 1 or fit)
      elseif it.is_replay then
        fit, has_rest = min(fit, floor(it.rest / it.p)), has_rest or it.rest > 0
      end
      exceeds = exceeds or it.p > it.limit
    end
    fit = exceeds and 0 or fit
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
        local needed, free = it.queued + it.p, it.available()
        at_least = at_least or needed > it.limit or it.is_queue and it.queued > 0
        it.is_short = it.is_short or it.p > free
        local possible = min(needed, it.limit)
        local wait = possible > free and max(1, it.wait(possible)) or 0
        if wait > us then
          us, by = wait, i - 1
        end
      end
      us = max(1, us)
    end
    local n, kind = count, by * 10 + (at_least and 2 or 1)
    -- With grants to follow it did not wait the first time, or it would have blocked them.
    if us <= longest * 1000 and not has_rest then
      n, kind = is_exact and 1 or count, kind + 2
      waits, blocked_us, blocked_by = true, us, by
      for _, it in ipairs(limits) do
        it.queued = it.queued + n * it.p
      end
    end
    answer(n, kind, us)
    count = count - n
  end
end

-- Write.
for i, it in ipairs(limits) do
  if is_replay then
    -- A limiter that has lost the record has nothing to give back.
    states[i] = {it.available(), it.is_replay and it.given or 0, it.is_replay and it.given_f or 0}
  else
    states[i] = {it.available(), it.mark()}
    it:write()
  end
end
return reply
