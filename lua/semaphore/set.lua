-- Changes the number of permits. Twin: src/store/calls/semaphore/change.rs.
--
-- ARGV   4 try, set, add or drain, 5 the permits
-- reply  {0, 1 if try set them; what drain took; or 0}
local out, rule = is_plain and 0 or call('ZCOUNT', KEYS[2], 0, '+inf'), ARGV[4]
local reply = {0, 0}
if rule == 'add' then
  new = (v or 0) + ARGV[5]
elseif rule == 'set' or rule == 'try' and not v then
  new = ARGV[5] - out
  reply[2] = rule == 'try' and 1 or 0
elseif rule == 'drain' and v then
  new, reply[2] = 0, v
end
