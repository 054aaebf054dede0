-- Renames the keys of an OVERALL limiter, replacing a limiter of the new name.
-- Twin: src/store/calls/keys.rs.
--
-- KEYS   the five of the limiter (hash, value, log, the client's value, the client's log), then
--        its five new ones
-- reply  {0}; {-5} if there is no limiter; {-6} if it is a PER_CLIENT one
if call('EXISTS', KEYS[1]) == 0 then
  return {-5}
end
if fields[3] == '1' then
  return {-6}
end
if KEYS[1] ~= KEYS[6] then
  for i = 1, 3 do
    if call('EXISTS', KEYS[i]) == 1 then
      call('RENAME', KEYS[i], KEYS[i + 5])
    else
      call('DEL', KEYS[i + 5])
    end
  end
  call('DEL', KEYS[9], KEYS[10])
end
return {0}
