-- The log as it will be: without expired entries, trimmed permits, and the entries of the call's own id. It is
-- read as far as needed, and not written. Twin: src/store/memory/live_log.rs.
--
-- Reads  call, int, permits_of, with_permits, limits; in s: trimmed, lowered (part/trim.lua)
-- Sets   in s, which already has: now; own: the entries of the call's own id, which are taken out; changes: the
--        new permits of each entry that will change, false for none and for an own entry:
--        size      entries in the log
--        expired   how many of them have expired; the others are live
--        rank      the place in the log from which it has yet to be read
--        is_settled  whether no other expired entry is left
--        dropped   the number of expired entries to take out, the oldest
--        credit    their permits
--        others    entries that are neither dropped nor the call's own
--        members, permits  the first of the others, oldest first, and their permits; false for an entry of
--                    an older Redisson
--        log_total permits in the log, once it has been summed
--        foreign   the error reply once a live entry of an older Redisson was read: {-3, its bytes}.
--                  Decisions after that are not written

-- Counts the log, and reads up to `limit` expired entries. A foreign entry counts for nothing.
local function read_log(s, limit)
  s.size = call('ZCARD', s.log_key)
  s.expired = s.size == 0 and 0 or call('ZCOUNT', s.log_key, '-inf', int(s.now - s.interval))
  while s.rank < math.min(s.expired, limit) do
    local last = math.min(s.rank + 1000, s.expired) - 1
    local step = call('ZRANGE', s.log_key, s.rank, last)
    for i = 1, #step do
      if s.changes[step[i]] == nil then
        s.dropped, s.credit = s.dropped + 1, s.credit + (permits_of(step[i]) or 0)
      end
    end
    s.rank = s.rank + #step
  end
  s.is_settled = s.rank == s.expired
  s.others = s.size - s.dropped - #s.own
end

-- The permits in the i-th entry; nil if there are fewer entries. They are read in growing steps.
local function look_at(s, i)
  while s.permits[i] == nil and s.rank < s.size do
    local at = #s.members
    local most = s.others > SHORT_LOG and i <= 8 and 8 or at < SHORT_LOG and SHORT_LOG or 1000
    local step = call('ZRANGE', s.log_key, s.rank, s.rank + most - 1)
    s.rank = s.rank + #step
    for k = 1, #step do
      if s.changes[step[k]] == nil then
        at = at + 1
        s.members[at], s.permits[at] = step[k], permits_of(step[k]) or false
      end
    end
  end
  if s.permits[i] == false then
    local member = s.members[i]
    if call('ZSCORE', s.log_key, member) - s.now + s.interval > 0 then
      s.foreign = s.foreign or {-3, #member}
    end
    return 0
  end
  return s.permits[i]
end

-- Sums the log.
local function sum_log(s)
  if not s.log_total then
    local sum = 0
    for i = 1, s.others do
      local p = s.permits[i] or (i <= SHORT_LOG or s.members[i]) and look_at(s, i)
      if not p then
        break
      end
      sum = sum + p
    end
    -- Further entries of a long log are not kept.
    for rank = s.rank, s.size - 1, 1000 do
      local step = call('ZRANGE', s.log_key, rank, rank + 999)
      for i = 1, #step do
        if s.changes[step[i]] == nil then
          local p = permits_of(step[i])
          if not p and rank + i > s.expired then
            s.foreign = s.foreign or {-3, #step[i]}
          end
          sum = sum + (p or 0)
        end
      end
    end
    s.log_total = sum
  end
  return s.log_total
end

-- Takes out the call's own entries, and dropped and trimmed ones.
local function write_log(s)
  -- First, so that the expired entries are the oldest.
  for i = 1, #s.own do
    call('ZREM', s.log_key, s.own[i])
  end
  if s.dropped > 0 then
    call('ZREMRANGEBYRANK', s.log_key, '0', s.dropped - 1)
  end
  for i = 1, s.trimmed do
    call('ZREM', s.log_key, s.members[i])
  end
  if s.lowered then
    local member = s.members[s.trimmed + 1]
    local score = call('ZSCORE', s.log_key, member)
    call('ZREM', s.log_key, member)
    call('ZADD', s.log_key, score, with_permits(member, s.lowered))
  end
end
