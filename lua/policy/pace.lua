-- Times that permits follow each other by: r permits every q microseconds. Twin: src/policy/pace.rs.
--
-- A time is t + f / r with 0 <= f < r, so that nothing is rounded. No product reaches 2^53.
local r, q = 1, 1

-- Sets the pace, unless so many permits and one more make numbers that are not exact.
local function set_pace(permits, every, most)
  if not (permits and every and permits >= 1 and every >= 1 and (most + 1) * permits < 9007199254740992) then
    return false
  end
  r, q = permits, every
  return floor(q / r) * most + floor(q % r * most / r) < 3155760000000000 -- a century
end

-- The time k permits later; earlier if k is negative.
local function plus(t, f, k)
  local rest = f + q % r * k
  return t + floor(q / r) * k + floor(rest / r), rest % r
end

local function is_after(t, f, other_t, other_f)
  return t > other_t or t == other_t and f > other_f
end

-- Whether k permits fit between two times.
local function fits(t, f, end_t, end_f, k)
  t, f = plus(t, f, k)
  return not is_after(t, f, end_t, end_f)
end

-- How many permits fit between two times, at most `most`: a guess in doubles, corrected by exact steps.
local function fitting(t, f, end_t, end_f, most)
  local k = max(0, min(most, floor(((end_t - t) + (end_f - f) / r) / q * r)))
  while k > 0 and not fits(t, f, end_t, end_f, k) do
    k = k - 1
  end
  while k < most and fits(t, f, end_t, end_f, k + 1) do
    k = k + 1
  end
  return k
end
