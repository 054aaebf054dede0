-- The requests of a call, one after the other. Twin: src/store/memory/decide.rs.
--
-- Reads  ARGV, total_text; per_client, rate, interval, keep_alive (part/config.lua); now;
--        EXACT_WAITS; wait_for, view (part/wait.lua); allowed, hold_ms, take_share (part/share.lua)
-- Sets   granted (part/wait.lua), and what is declared here
local group_permits, group_max_wait, group_count = {}, {}, {} -- groups of alike requests; the longest waits in ms
local requests = 0
local demand = 0 -- the permits that the requests within the rate ask for together
local reply, reply_size

local function read_requests()
  local packed, at, p, max_wait_ms, n = ARGV[7] or '', 1, total_text - 0, 0, 1
  repeat
    if packed ~= '' then
      p, max_wait_ms, n, at = struct.unpack('<I4I7I4', packed, at)
    end
    local k = #group_count + 1
    group_permits[k], group_max_wait[k], group_count[k] = p, max_wait_ms, n
    requests = requests + n
    if p <= rate then
      demand = demand + p * n
    end
  until packed == '' or at > #packed
  reply, reply_size = {per_client, 0, rate, interval, keep_alive, now}, 6
end

local function answer(n, kind, ms)
  local size = reply_size
  if n > 0 and size > 6 and reply[size - 1] == kind and reply[size] == ms then
    reply[size - 2] = reply[size - 2] + n
  elseif n > 0 then
    -- In this order: what is not put at an array's end is slow to read again.
    reply[size + 1] = n
    reply[size + 2] = kind
    reply[size + 3] = ms
    reply_size = size + 3
  end
end

-- The answer that was given when this many permits were granted, to requests that come again.
local function answer_as_before(permits)
  for i = 1, #group_count do
    local p, n = group_permits[i], group_count[i]
    local fit = p <= rate and math.min(n, math.floor(permits / p)) or 0
    permits = permits - fit * p
    answer(fit, 0, 0)
    answer(n - fit, p <= rate and 2 or 5, p <= rate and 1 or 0)
  end
end

-- Decides the requests out of `budget`, and returns what is left of it; nil if a foreign entry is
-- live. `others` is free too, but not for these requests: only their waits count it. `is_settled`: no
-- expired entry is in the log any more; otherwise what does not fit is left undecided. `make_view`,
-- if given, is called before the first wait.
local function decide(budget, others, is_settled, make_view)
  local queued, waiting, undecided = 0, 0, false -- permits and requests that wait
  local last -- the wait of the last of those
  local known_ms, known_more = {}, {} -- waits by the permits that are lacking
  for i = 1, #group_count do
    local p, max_wait_ms, n = group_permits[i], group_max_wait[i], group_count[i]
    if not undecided and p > rate then
      answer(n, 5, 0)
      n = 0
    elseif not undecided and (queued == 0 or allowed and queued < budget) then
      local fit = math.max(0, math.min(n, math.floor((budget - queued) / p)))
      if allowed and max_wait_ms >= hold_ms then
        fit = queued > 0 and 0 or take_share(p, fit)
      end
      answer(fit, 0, 0)
      if fit > 0 then
        known_ms = {}
      end
      budget, granted, n = budget - fit * p, granted + fit * p, n - fit
      undecided = n > 0 and not is_settled
      if allowed then
        -- They fit and exceed the share: they wait, and leave room for those that cannot.
        local back = math.min(n, math.floor((budget - queued) / p))
        if back > 0 then
          answer(back, 4, hold_ms)
          queued, n = queued + back * p, n - back
        end
      end
    end
    if undecided then
      answer(n, 6, 0)
      n = 0
    end
    while n > 0 do
      local bounded = waiting >= EXACT_WAITS
      local ms, more = last, true
      if not bounded then
        local lacking = queued + p - budget - others
        if not known_ms[lacking] then
          if make_view and not view then
            make_view()
          end
          known_ms[lacking], known_more[lacking] = wait_for(lacking)
          if not known_ms[lacking] then
            return nil
          end
        end
        ms, more = known_ms[lacking], known_more[lacking]
      end
      if max_wait_ms < ms then
        -- It blocks nobody, so that the wait of the next one like it is the same.
        answer(n, more and 2 or 1, ms)
        n = 0
      else
        local several = bounded and n or 1
        answer(several, more and 4 or 3, ms)
        last = ms
        queued, waiting, n = queued + several * p, waiting + 1, n - several
      end
    end
  end
  return budget
end
