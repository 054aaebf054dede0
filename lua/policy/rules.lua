-- The parts of the policy's file as functions.
function configure(text)
  is_valid = false
--> parameters
end

function roll()
--> roll
end

-- A grant lowers what is available by as much; a queue's file says otherwise.
function take(p)
  free = free - p
--> take
end

--> functions
