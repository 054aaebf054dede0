-- The record of the lane's last call that was granted something or gave something back: the call's number, time and
-- permits, the mark, what is available (of a queue its version), and the mark's fraction if it has one.
local RECORD, record_size = '<I7I7I7I7I4', 32
if has_fraction then
  RECORD, record_size = '<I7I7I7I7I4I7', 39
end
local number, last, at, permits, longest, count = 0, 0, 0
if record and #record ~= record_size then
  failure = failure or {-8, 0, lane .. '=' .. record}
elseif record then
  last, at = numbers('<I7I7', record)
end
if failure then
  return failure
end
if lane ~= '' then
  number, permits, longest, count = numbers(#requests == 22 and '<I7I4I7I4' or '<I7', requests)
end
local was_used = x
do
--> roll
end
