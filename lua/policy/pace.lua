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

-- How many permits fit between two times, at most `most`: a guess in doubles, corrected by exact steps.
local function fitting(t, f, end_t, end_f, most)
  local k, fits = ((end_t - t) + (end_f - f) / r) / q * r, nil
  k = k > most and most or k < 0 and 0 or k - k % 1
  repeat
    local step_t, step_f = plus(t, f, k)
    fits = step_t < end_t or step_t == end_t and step_f <= end_f
    k = fits and k or k - 1
  until fits or k <= 0
  while fits and k < most do
    local step_t, step_f = plus(t, f, k + 1)
    fits = step_t < end_t or step_t == end_t and step_f <= end_f
    k = fits and k + 1 or k
  end
  return k < 0 and 0 or k
end
