-- Times that permits follow each other by: r permits every q microseconds. Twin: src/policy/bucket.rs.
--
-- A time is t + f / r with 0 <= f < r, so that nothing is rounded. No product reaches 2^53.
local r, q = 1, 1

-- The time k permits later; earlier if k is negative.
local function plus(t, f, k)
  if r == 1 then
    return t + q * k, 0
  end
  local part = q % r
  local rest = f + part * k
  f = rest % r
  return t + (q - part) / r * k + (rest - f) / r, f
end

-- How many permits the time from one to another is worth, rounded up; most + 1 if it is worth more than that. A guess in
-- doubles, which is corrected by what it misses, in parts of a microsecond: each permit takes q of them.
local function worth(t, f, to_t, to_f, most)
  local k = ((to_t - t) + (to_f - f) / r) / q * r
  k = k < most and k - k % 1 or most
  local at_t, at_f = plus(t, f, k)
  local missing = (to_t - at_t) * r + to_f - at_f
  while missing > 0 and k <= most do
    k, missing = k + 1, missing - q
  end
  while missing <= -q do
    k, missing = k - 1, missing + q
  end
  return k
end
