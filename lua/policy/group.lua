-- Reads limiters with policies that are decided together.
--
-- KEYS   the hash of each limiter
-- ARGV   for each limiter the nine arguments of its own call, as head.lua has them. Lane, number, abandon, again
--        and time are the same for all, and so are the waits and counts of the requests
-- reply  as for one limiter, or one of its failures with the hash's key as the fourth element
local limits, is_replay, schedule = {}, false, nil
for i = 1, #KEYS do
  local it = open({KEYS[i]}, {unpack(ARGV, i * 9 - 8, i * 9)})
  if it[1] then
    return {it[1], it[2] or 0, it[3] or '', KEYS[i]}
  end
  limits[i], is_replay = it, is_replay or it.is_replay
end
