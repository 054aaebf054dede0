-- What is asked of one limiter only: what it has, a refund, other parameters.
if action == 'peek' then
  local p = numbers('<I7', requests)
  local possible = min(p, limit)
  return {0, free, limit, possible > free and max(1, wait(possible, 0)) or 0, p > limit and 1 or 0, wanted}
elseif action == 'give' then
  local _, mark, fraction, p = numbers('<I7I7I7I7', requests)
  -- Of what was reset nothing comes back.
  local credit = was_used and give(mark, fraction, p) or 0
  roll()
  write(credit)
  return {0, credit}
elseif is_change then
  write(0)
  return {0}
end
local limits, is_replay = {it}, is_replay
