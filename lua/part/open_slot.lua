-- In a slot of a cluster that is being moved, a call may declare only keys that are on the node. The names of
-- all keys follow its arguments, and then their number.
--
-- Sets   KEYS, ARGV: those that the script expects
local KEYS, ARGV = KEYS, ARGV
do
  local count = tonumber(ARGV[#ARGV])
  local given = #ARGV - 1 - count
  local names, arguments = {}, {}
  for i = 1, given do
    arguments[i] = ARGV[i]
  end
  for i = 1, count do
    names[i] = ARGV[given + i]
  end
  KEYS, ARGV = names, arguments
end
