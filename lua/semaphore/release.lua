-- Reads what comes back with the call. Twin: SemaphoreCall::comes_back in src/store/calls/semaphore/acquire.rs.
--
-- ARGV   6 what comes back. Expirable: the ids, 16 bytes each. Plain: numbers of calls of this lane, each with permits;
--        those of calls after the lane's last one come back now, the others have done so
-- reply  {0, what became of each id, or of all permits of a plain semaphore …}: 0 gone, 1 in time, 2 after the end of the
--        lease
local reply, given = {0}, 0
-- The members that come back; how many of them count as out, and how many of these have leases that have ended.
local found, counted, late = {}, 0, 0
if is_plain and ARGV[6] ~= '' then
  for first, permits in string.gmatch(ARGV[6], '(%d+) (%d+)') do
    given = given + (number and tonumber(first) <= last and 0 or permits)
  end
  local was_gone = not v
  if last and last == number then
    was_gone = took < 0
  end
  reply[2] = was_gone and 0 or 1
end
-- The usual one: a single permit, whose lease cannot have ended by then. Nothing else is left to decide.
local is_usual = not is_plain and now == 0 and #ARGV[6] == 16 and v and v < MOST
local is_done = is_plain or is_usual and call('ZREM', KEYS[2], ARGV[6]) == 1
if is_done and not is_plain then
  given, reply[2] = 1, 1
end
-- A command takes some thousand arguments.
for from = 1, is_done and 0 or #ARGV[6], 16000 do
  local ids = {}
  for i = from, min(from + 15999, #ARGV[6]), 16 do
    ids[#ids + 1] = string.sub(ARGV[6], i, i + 15)
  end
  local scores = call('ZMSCORE', KEYS[2], unpack(ids))
  for i, id in ipairs(ids) do
    local score = scores[i]
    if not score then
      -- Redisson 3.16 and earlier write ids as text.
      id = string.gsub(id, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
      score = call('ZSCORE', KEYS[2], id)
    end
    score = not found[id] and tonumber(score)
    local is_late = score and score >= 0 and score <= now
    if score then
      found[id], found[#found + 1] = true, id
      counted, late = counted + (score >= 0 and 1 or 0), late + (is_late and 1 or 0)
    end
    reply[#reply + 1] = score and v and (is_late and 2 or 1) or 0
  end
end
given = v and given + #found or 0
new = v and new + given
if new and new > MOST then
  return {-16}
elseif number and last < number and (abandon or ARGV[6] ~= '') then
  record = (v or ARGV[6] == '') and 0 or -1
end
