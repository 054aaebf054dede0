-- The first write: removes the members that come back.
for from = 1, #found, 1000 do
  call('ZREM', KEYS[2], unpack(found, from, min(from + 999, #found)))
end
