-- The lifetime of the keys. Twin: src/store/memory/config.rs.
--
-- Reads  call, int; in s: keep_alive, hash_key, value_key, log_key (part/config.lua)

-- The last step of every call, including refusals: the value and the log live as long as the hash.
local function refresh_lifetime(s)
  local ms = s.keep_alive
  if ms > 0 then
    call('PEXPIRE', s.hash_key, int(ms))
  else
    ms = call('PTTL', s.hash_key)
  end
  if ms > 0 then
    call('PEXPIRE', s.value_key, int(ms))
    call('PEXPIRE', s.log_key, int(ms))
  end
end
