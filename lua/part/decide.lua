-- Deciding the requests of a call, one after the other. Twin: src/store/memory/decide.rs.
--
-- Reads  EXACT_WAITS, wait_for (part/wait.lua); allowed, hold_ms, take_share (part/share.lua)
-- Sets   in s: granted (part/wait.lua)

-- Appends the outcome of `n` requests to the reply.
local function answer(reply, n, kind, ms)
  local size = #reply
  if n > 0 and size > 6 and reply[size - 1] == kind and reply[size] == ms then
    reply[size - 2] = reply[size - 2] + n
  elseif n > 0 then
    -- In this order: elements that are not appended to an array are slow to read again.
    reply[size + 1] = n
    reply[size + 2] = kind
    reply[size + 3] = ms
  end
end

-- Decides the requests (permits, the longest wait in ms, and count of each group) out of `budget`, and returns
-- the rest of it. `others` are free too, but not for these requests: they count only for waits. If expired
-- entries are left in the log, requests that do not fit are undecided.
local function decide(s, reply, requests, budget, others)
  local queued, waiting, undecided = 0, 0, false -- permits and number of waiting requests
  local last -- the wait of the last waiting request
  local known = {} -- waits by the number of missing permits, negative if they are bounds
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
        -- Requests that fit but exceed the share wait, and leave room for those that cannot.
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
        -- A refused request blocks no others, so the next one like it has the same wait.
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
