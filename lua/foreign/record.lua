-- Writes the record `own`, which is needed until no attempt of the call can follow. The life of the lanes' hash is
-- prolonged by a lane's first call in each ten seconds. Mixer's record has its end in nanoseconds.
if own and lane == 'token' then
  local _, _, permits = numbers('<I7I7I7', own)
  call('HSET', lanes_key, 'token', format('%d', permits), 'expire', format('%d', ends * 1000))
  call('PEXPIRE', lanes_key, format('%d', ceil((ends - now) / 1000)))
elseif own then
  call('HSET', lanes_key, lane, own)
  if at < now - now % (MARGIN * 1000) then
    call('PEXPIRE', lanes_key, HORIZON + MARGIN)
  end
end
