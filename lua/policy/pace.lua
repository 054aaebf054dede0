-- Times that permits follow each other by: r permits every q microseconds. Twin: src/policy/pace.rs.
--
-- A time is t + f / r with 0 <= f < r, so that nothing is rounded. No product reaches 2^53.
local r, q = 1, 1

-- The time k permits later; earlier if k is negative.
local function plus(t, f, k)
  local part = q % r
  local rest = f + part * k
  f = rest % r
  return t + (q - part) / r * k + (rest - f) / r, f
end

-- How many permits the time from one to another is worth, rounded up, at most limit + 1: a guess in doubles, which is
-- exact for whole numbers, corrected by exact steps.
local function worth(t, f, to_t, to_f)
  local k = min(limit, ceil(((to_t - t) + (to_f - f) / r) / q * r))
  if r == 1 and k < limit then
    return k
  end
  local at_t, at_f = plus(t, f, k)
  while k <= limit and (at_t < to_t or at_t == to_t and at_f < to_f) do
    k = k + 1
    at_t, at_f = plus(t, f, k)
  end
  repeat
    k = k - 1
    at_t, at_f = plus(t, f, k)
  until at_t < to_t or at_t == to_t and at_f < to_f
  return k + 1
end
