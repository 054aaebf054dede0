-- Going from one limiter of an acquire from several to the next.
--
-- Reads  ARGV, names (part/arguments_all.lua), call, all_fields (part/grant_usual_all.lua), s (part/config.lua)
local blank = s

-- Turns to the i-th limiter: its keys, arguments and hash, of which nothing has been read yet.
local function turn_to(i)
  s, KEYS = {}, {unpack(names, i * 5 - 4, i * 5)}
  for name, empty in pairs(blank) do
    s[name] = type(empty) == 'table' and {} or empty
  end
  s.hash_key = KEYS[1]
  entry, total, seen, creation, audit_limit, groups = unpack(ARGV, i * 6 - 1, i * 6 + 4)
  fields = all_fields[i] or call('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime')
end
