-- Fixed windows on a grid, calendar windows, and windows that the first grant opens. Twin: src/policy/window.rs.
--
-- Bounds, for calendar windows: the starts of the window before, of the current one, and of the next two, by the
-- client's reckoning.
-- State: the window ends at x (0 if it is not open), and y permits are used.
-- The window that now is in, or that a grant would open now, ends at `next_end`.
layout, size = '<I6I6I7I7', 26
local kind, width, next_end = string.sub(wanted, 1, 1), 0, nil
--- parameters
if kind == 'f' and #text == 20 then
  local offset
  limit, width, offset = numbers('<I4I7I7', text, 3)
  next_end, is_valid = now - (now - offset) % width + width, offset < width
elseif kind == 'a' and #text == 13 then
  limit, width = numbers('<I4I7', text, 3)
  next_end, is_valid = now + width, width > 0
elseif kind == 'd' and #text > 6 then
  limit, is_valid = numbers('<I4', text, 3), true
  -- Bounds are for the parameters of the call. Those that it replaces only say whether their window is over.
  width, next_end = math.huge, nil
  if text == wanted then
    local before, current, next, after = numbers('<I7I7I7I7', bounds)
    if now >= next then
      before, current = next, after
    elseif now >= current then
      before, current = current, next
    end
    if now >= before and now < current then
      next_end, width = current, current - before
    end
  end
  if not next_end and (text == wanted or is_stored == '1') then
    failure = {-10, now, text}
  end
  next_end = next_end or now
end
--- roll
if not x or now >= x then
  x, y = kind == 'a' and 0 or next_end, 0
elseif x - now > 2 * width then
  -- The clock went back.
  x, is_behind = next_end, true
end
free = max(0, limit - y)
--- take
if x == 0 and p > 0 then
  x = next_end
end
y = y + p
ends = x
--- wait
us = x - now
--- functions
function give(mark, _, p)
  local credit = mark == x and min(p, y) or 0
  y = y - credit
  return credit
end

function change(switch)
  local scaled = switch()
  if kind ~= 'a' then
    x = next_end
  elseif x > 0 then
    x = min(x, next_end)
  end
  y = scaled(y)
end
