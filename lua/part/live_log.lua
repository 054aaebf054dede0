-- The log as a call sees it, read without writing: what has expired, what is left, and the sum of
-- that. Twin: src/store/memory/live_log.rs.
--
-- Ranks: the `expired` entries, then the live ones. `dropped` of the expired are to be taken out, oldest
-- first.
--
-- Reads  call, int, permits_of; interval, log_key (part/config.lua); now, which the script sets
-- Sets   what is declared here
local now -- the time of the call as a number
local first -- the lowest score in the log, nil if it is empty
local count, expired, dropped -- entries, as above
local credit -- the permits in the dropped ones
local log_total -- the permits in the log after the drop, once it has been summed
local foreign -- the error reply of a live entry of an older Redisson: {-3, its bytes}

-- Counts the log.
local function read_log()
  local oldest = call('ZRANGE', log_key, '0', '0', 'WITHSCORES')
  count, expired, dropped, credit = 0, 0, 0, 0
  first = tonumber(oldest[2])
  if first then
    count = call('ZCARD', log_key)
  end
end

-- Sums the oldest expired entries into `credit`, at least one step of them, then until `enough`
-- permits are together, or `limit` entries, or there are no more. Returns whether these are all.
-- A foreign one counts for nothing.
local function read_expired(enough, limit)
  if count == 0 or first > now - interval then
    return true
  end
  local cutoff = int(now - interval)
  local step = call('ZRANGEBYSCORE', log_key, '-inf', cutoff, 'LIMIT', '0', tostring(DROP_STEP))
  expired = #step
  if expired == DROP_STEP then
    expired = call('ZCOUNT', log_key, '-inf', cutoff)
  end
  while true do
    for i = 1, #step do
      credit = credit + (permits_of(step[i]) or 0)
    end
    dropped = dropped + #step
    if dropped == expired then
      return true
    elseif dropped >= limit or credit >= enough then
      return false
    end
    local last = math.min(expired, dropped + DROP_STEP, limit) - 1
    step = call('ZRANGE', log_key, int(dropped), int(last))
  end
end

-- The entries after the drop, oldest first, read in growing steps and kept. A live foreign one
-- has -1 - its bytes for permits, and is an error only when it is looked at.
local members, permits = {}, {}

-- Reads on until there are `n` of them, or all.
local function read_entries(n)
  local left = count - dropped
  while #members < n and #members < left do
    local at = #members
    local size = at == 0 and n <= 8 and 8 or at < SHORT_LOG and SHORT_LOG - at or 1000
    local first = at + dropped
    local step = call('ZRANGE', log_key, int(first), int(first + size - 1))
    for i = 1, #step do
      local p = permits_of(step[i])
      if not p then
        p = first + i - 1 < expired and 0 or -1 - #step[i]
      end
      members[at + i], permits[at + i] = step[i], p
    end
  end
end

-- The permits that `read_entries` has kept; nil if they mean a live foreign entry.
local function looked_at(p)
  if p < 0 then
    foreign = {-3, -1 - p}
    return nil
  end
  return p
end

-- Returns false if the oldest entry after the drop is a live foreign one.
local function look_at_oldest()
  read_entries(1)
  return not permits[1] or looked_at(permits[1]) ~= nil
end

-- Sums the log after the drop into `log_total`. Returns false if a foreign entry is live.
local function sum_log()
  if log_total then
    return true
  end
  read_entries(SHORT_LOG)
  local sum, at = 0, #permits
  for i = 1, at do
    if not looked_at(permits[i]) then
      return false
    end
    sum = sum + permits[i]
  end
  -- What a long log has besides is not kept.
  while at < count - dropped do
    local rank = at + dropped
    local step = call('ZRANGE', log_key, int(rank), int(rank + 999))
    for i = 1, #step do
      local p = permits_of(step[i])
      if not p and rank + i - 1 >= expired then
        foreign = {-3, #step[i]}
        return false
      end
      sum = sum + (p or 0)
    end
    at = at + #step
  end
  log_total = sum
  return true
end

-- Takes the dropped entries out.
local function drop_expired()
  if dropped > 0 then
    call('ZREMRANGEBYRANK', log_key, '0', int(dropped - 1))
  end
end
