-- The lifetime of the keys. Twin: src/store/memory/lifetime.rs.
--
-- Reads  call, KEYS, int; in s: keep_alive, value_key, log_key (part/config.lua)

-- The last step of every call, including refusals: the value and the log live as long as the hash.
local function refresh_lifetime(s)
  local ms = s.keep_alive
  if ms > 0 then
    call('PEXPIRE', KEYS[1], int(ms))
  else
    ms = call('PTTL', KEYS[1])
  end
  if ms > 0 then
    call('PEXPIRE', s.value_key, int(ms))
    call('PEXPIRE', s.log_key, int(ms))
  end
end
