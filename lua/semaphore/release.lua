-- Gives permits back. Twin: src/store/calls/semaphore/release.rs.
--
-- ARGV   4 plain: behind what value.lua reads the number of permits; expirable: the ids, 16 bytes each
-- reply  {0, what became of them …}: 0 gone, 1 in time, 2 after the end of the lease
local reply = {0}
if is_plain and took and last == number then
  reply[2] = took < 0 and 1 or 0
elseif is_plain then
  local count = struct.unpack('<I7', ARGV[4], 15)
  record = KEYS[4] and (v and -count or 0)
  new = v and new + count
  reply[2] = v and 1 or 0
elseif v and v + #ARGV[4] / 16 > MOST then
  return {-16}
end
for at = 1, is_plain and 0 or #ARGV[4], 16 do
  local id, ends, is_out = string.sub(ARGV[4], at, at + 15)
  for _ = 1, 2 do
    -- Callers who know that no lease has ended name the time 0.
    ends = now > 0 and tonumber(call('ZSCORE', KEYS[2], id))
    is_out = call('ZREM', KEYS[2], id) == 1
    if is_out then
      new = v and new + 1
      break
    end
    -- Redisson 3.16 and earlier write ids as text.
    id = string.gsub(id, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
  end
  reply[(at + 31) / 16] = is_out and v and (ends and ends >= 0 and ends <= now and 2 or 1) or 0
end
