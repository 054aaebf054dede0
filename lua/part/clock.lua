-- The time of the call.
--
-- Reads  call, ARGV
-- Sets   now_text: the first argument, or the server's time if that is ''
local now_text = ARGV[1]
if now_text == '' then
  local t = call('TIME')
  now_text = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
end
