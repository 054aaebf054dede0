-- The requests of a call, one after the other. Twin: src/store/memory/decide.rs.
--
-- Reads  EXACT_WAITS, wait_for (part/wait.lua); allowed, hold_ms, take_share (part/share.lua)
-- Sets   in s: granted (part/wait.lua)

-- Puts what becomes of so many requests behind the reply.
local function answer(reply, n, kind, ms)
  local size = #reply
  if n > 0 and size > 6 and reply[size - 1] == kind and reply[size] == ms then
    reply[size - 2] = reply[size - 2] + n
  elseif n > 0 then
    -- In this order: what is not put at an array's end is slow to read again.
    reply[size + 1] = n
    reply[size + 2] = kind
    reply[size + 3] = ms
  end
end

-- Decides the requests (permits, the longest wait in ms and count of each group of alike ones) out of `budget`,
-- and returns what is left of it. `others` is free too, but not for
-- these requests: only their waits count it. If expired entries are left in the log, what does not fit is
-- undecided.
local function decide(s, reply, requests, budget, others)
  local queued, waiting, undecided = 0, 0, false -- permits and requests that wait
  local last -- the wait of the last of those
  local known = {} -- waits by the permits that are lacking, negative if they are bounds
  for i = 1, #requests, 3 do
    local p, max_wait_ms, n = requests[i], requests[i + 1], requests[i + 2]
    if not undecided and p > s.rate - s.headroom then
      answer(reply, n, 5, 0)
      n = 0
    elseif not undecided and (queued == 0 or allowed and queued < budget) then
      local fit = math.max(0, math.min(n, math.floor((budget - queued) / p)))
      if allowed and max_wait_ms >= hold_ms then
        fit = queued > 0 and 0 or take_share(p, fit)
      end
      answer(reply, fit, 0, 0)
      if fit > 0 then
        known = {}
      end
      budget, s.granted, n = budget - fit * p, s.granted + fit * p, n - fit
      undecided = n > 0 and not s.is_settled
      if allowed then
        -- They fit and exceed the share: they wait, and leave room for those that cannot.
        local back = math.min(n, math.floor((budget - queued) / p))
        if back > 0 then
          answer(reply, back, 4, hold_ms)
          queued, n = queued + back * p, n - back
        end
      end
    end
    if undecided then
      answer(reply, n, 6, 0)
      n = 0
    end
    while n > 0 do
      local bounded = waiting >= EXACT_WAITS
      local ms, more = last, true
      if not bounded then
        local lacking = queued + p - budget - others
        if not known[lacking] then
          ms, more = wait_for(s, lacking)
          known[lacking] = more and -ms or ms
        end
        ms, more = math.abs(known[lacking]), known[lacking] < 0
      end
      if max_wait_ms < ms then
        -- It blocks nobody, so that the wait of the next one like it is the same.
        answer(reply, n, more and 2 or 1, ms)
        n = 0
      else
        local several = bounded and n or 1
        answer(reply, several, more and 4 or 3, ms)
        last = ms
        queued, waiting, n = queued + several * p, waiting + 1, n - several
      end
    end
  end
  return budget
end
