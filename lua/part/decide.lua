-- Deciding the requests of a call, one after the other. Twin: src/store/memory/decide.rs.
--
-- Reads  EXACT_WAITS, wait_for (part/wait.lua); allowed, hold_ms, take_share (part/share.lua)
-- Sets   in s, which already has requests (permits, the longest wait in ms, and count of each group) and headroom:
--        budget   the permits for the requests
--        queued   those of waiting requests, which come first
--        granted  see part/wait.lua
--        waits    by the number of missing permits, negative if they are bounds

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

-- How many of `n` requests of the group at `k` fit behind the waiting ones.
local function fitting(limits, k, n)
  for i = 1, #limits do
    local s = limits[i]
    n = math.min(n, math.floor((s.budget - s.queued) / s.requests[k]))
  end
  return math.max(0, n)
end

-- Decides the requests, each of which takes from all limiters or from none. `is_overtaken`: what is free is what
-- another attempt was granted, and those that got nothing from it are refused again. `is_settled`: no expired entry
-- is left in a log; otherwise requests that do not fit are undecided. Returns whether any request is within the
-- rates, and the limiter whose log cannot be read, if there is one.
local function decide(limits, reply, is_overtaken, is_settled)
  local first, waiting, undecided, is_within = limits[1], 0, false, false
  local last, by = 1, 0 -- the wait of the last waiting request, and the limiter that it waits for longest
  for k = 1, #first.requests, 3 do
    local max_wait_ms, n, is_too_large = first.requests[k + 1], first.requests[k + 2], false
    for i = 1, #limits do
      is_too_large = is_too_large or limits[i].requests[k] > limits[i].rate - limits[i].headroom
    end
    is_within = is_within or not is_too_large
    if is_too_large and not undecided then
      answer(reply, n, 5, 0)
      n = 0
    elseif not undecided and (first.queued == 0 or allowed and first.queued < first.budget) then
      local fit = fitting(limits, k, n)
      if allowed and max_wait_ms >= hold_ms then
        fit = first.queued > 0 and 0 or take_share(first.requests[k], fit)
      end
      answer(reply, fit, 0, 0)
      for i = 1, fit > 0 and #limits or 0 do
        local s, taken = limits[i], fit * limits[i].requests[k]
        s.budget, s.granted, s.waits = s.budget - taken, s.granted + taken, false
      end
      n = n - fit
      undecided = n > 0 and not is_settled
      if allowed then
        -- Requests that fit but exceed the share wait, and leave room for those that cannot.
        local back = fitting(limits, k, n)
        answer(reply, back, 4, hold_ms)
        first.queued, n = first.queued + back * first.requests[k], n - back
      end
    end
    if undecided then
      answer(reply, n, 6, 0)
      n = 0
    end
    while n > 0 do
      local ms, more, several = last, true, n
      if is_overtaken then
        ms, max_wait_ms = 1, 0
      elseif waiting < EXACT_WAITS then
        -- How long all of them together take, and whether one of them may take longer.
        ms, more, several = 0, false, 1
        for i = 1, #limits do
          local s = limits[i]
          local lacking = s.queued + s.requests[k] - s.budget
          if lacking > 0 then
            s.waits = s.waits or {}
            if not s.waits[lacking] then
              local wait, is_bound = wait_for(s, lacking)
              s.waits[lacking] = is_bound and -wait or wait
            end
            local wait = math.abs(s.waits[lacking])
            more = more or s.waits[lacking] < 0
            if wait > ms then
              ms, by = wait, i - 1
            end
          end
          if s.foreign then
            return is_within, s
          end
        end
        ms = math.max(1, ms)
      end
      if max_wait_ms < ms then
        -- It blocks nobody, so that the wait of the next one like it is the same.
        answer(reply, n, by * 10 + (more and 2 or 1), ms)
        n = 0
      else
        answer(reply, several, by * 10 + (more and 4 or 3), ms)
        for i = 1, #limits do
          limits[i].queued = limits[i].queued + several * limits[i].requests[k]
        end
        last, waiting, n = ms, waiting + 1, n - several
      end
    end
  end
  return is_within
end
