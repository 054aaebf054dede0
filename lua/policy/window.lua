-- Fixed windows on a grid, calendar windows, and windows that the first grant opens. Twin: src/policy/window.rs.
--
-- Bounds, for calendar windows: the starts of the window before, of the current one, and of the next two, by the
-- client's reckoning, with spaces between them.
-- State: the window ends at e (0 if it is not open), and n permits are used.
local width, offset, bound = 0, 0, nil

function configure(text)
  if kind == 'f' then
    limit, width, offset = numbers(text, '^f1:(%d+),(%d+),(%d+)$')
    return is_permits(limit) and is_span(width) and offset and offset < width
  elseif kind == 'a' then
    limit, width = numbers(text, '^a1:(%d+),(%d+)$')
    return is_permits(limit) and is_span(width)
  end
  limit = numbers(text, '^d1:(%d+),[DMQYW][1-7]?,[%w_/+-]+$')
  -- Bounds are for the parameters of the call. Those that it replaces only say whether their window is over.
  width, bound = math.huge, nil
  if text == wanted then
    local start
    for text in string.gmatch(bounds, '%S+') do
      local next = tonumber(text)
      if start and start <= now and now < next then
        bound, width = next, next - start
      end
      start = next
    end
  end
  if limit and not bound and (text == wanted or is_stored == '1') then
    problem = {-10, now, text}
  end
  return is_permits(limit)
end

-- The end of the window that now is in.
local function current_end()
  if kind == 'f' then
    return (floor((now - offset) / width) + 1) * width + offset
  end
  return kind == 'a' and now + width or bound or now
end

function roll()
  if not s or now >= s.e then
    s = {e = kind == 'a' and 0 or current_end(), n = 0}
  elseif s.e - now > 2 * width then
    -- The clock went back.
    s.e = current_end()
  end
end

function available()
  return max(0, limit - s.n)
end

function take(p)
  if s.e == 0 then
    s.e = current_end()
  end
  s.n = s.n + p
end

function wait()
  return s.e - now
end

function mark()
  return s.e, 0
end

function give(given, _, p)
  local credit = given == s.e and min(p, s.n) or 0
  s.n = s.n - credit
  return credit
end

function ttl()
  return s.e - now
end

function change(switch)
  local scaled, e = switch(), s.e
  if kind ~= 'a' then
    s.e = current_end()
  elseif e > 0 then
    s.e = min(e, current_end())
  end
  s.n = scaled(s.n)
end
