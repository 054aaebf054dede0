-- Gives permits back. Twin: src/store/calls/semaphore/release.rs.
--
-- ARGV   6 plain: the number of permits; expirable: the ids, 16 bytes each
-- reply  {0, what became of them …}: 0 gone, 1 in time, 2 after the end of the lease
local reply = {0}
if not is_plain and v and v + #ARGV[6] / 16 > MOST then
  return {-16}
elseif is_plain and last == number and number then
  reply[2] = took < 0 and 1 or 0
elseif is_plain then
  record = number and (v and -ARGV[6] or 0)
  new = v and new + ARGV[6]
  reply[2] = v and 1 or 0
end
-- A command takes some thousand arguments.
for from = 1, is_plain and 0 or #ARGV[6], 16000 do
  local ids, found = {}, {}
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
    if score then
      found[id], found[#found + 1] = true, id
    end
    reply[#reply + 1] = score and v and (score >= 0 and score <= now and 2 or 1) or 0
  end
  if #found > 0 then
    call('ZREM', KEYS[2], unpack(found))
    new = v and new + #found
  end
end
