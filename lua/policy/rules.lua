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

-- The time until p permits are available: more than there are now, and no more than the limit. In a queue, the time
-- until the start of a request that `behind` permits precede.
function wait(p, behind)
  local us
--> wait
  return us
end

-- Writes the state of another service, and the record of this call.
function write_state(own)
--> write
--> record
end

--> functions
