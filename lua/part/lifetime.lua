-- How long the keys live. Twin: src/store/memory/lifetime.rs.
--
-- Reads  call, KEYS, int; keep_alive, value_key, log_key (part/config.lua)

-- What every call does at its end, refusals included: the value and the log live as long as the
-- hash.
local function refresh_lifetime()
  if keep_alive > 0 then
    local ms = int(keep_alive)
    call('PEXPIRE', KEYS[1], ms)
    call('PEXPIRE', value_key, ms)
    call('PEXPIRE', log_key, ms)
  else
    local ms = call('PTTL', KEYS[1])
    if ms > 0 then
      call('PEXPIRE', value_key, int(ms))
      call('PEXPIRE', log_key, int(ms))
    end
  end
end
