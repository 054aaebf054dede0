-- The holders of permits, and the number of free permits that may go to requests that can wait. Twin:
-- src/store/memory/share.rs.
--
-- The call's id begins like every id of this crate's clients: the mark (3 bytes), the client's weight, the
-- client (4 bytes). The highest bit of the last byte marks a debt.
--
-- Reads  ARGV; call, int, permits_of; LONGEST_SHARED_LOG; in s: the limiter and its log
-- Sets   the names declared here
local terms -- four numbers as text: see the head of acquire.lua
local allowed -- what requests that can wait may take now; nil for whatever is free
local share_size, held = 0, 0 -- the whole share, and the part of it that the client holds
-- The wait of a request that exceeds the share; a request that cannot wait this long is not held back.
local hold_ms = 0
local holders -- the reply: other clients of this crate, whether Redisson is one, share, entries

-- Reads the holders of permits, and computes the share of the call's client, which takes at most `free`
-- permits of it.
local function read_holders(s, free)
  local rate, interval, log_key, now = s.rate, s.interval, s.log_key, s.now
  if s.per_client == 1 then
    return
  end
  local all = s.others
  if all > LONGEST_SHARED_LOG then
    holders = {0, 0, 0, all}
    return
  end
  local sub, byte = string.sub, string.byte
  local mark, weight, own = sub(ARGV[2], 2, 4), byte(ARGV[2], 5), sub(ARGV[2], 6, 9)
  local redisson, entries, own_first, weights = 0, 0, nil, {}
  for rank = s.expired, s.size - 1, 1000 do
    local step = call('ZRANGE', log_key, int(rank), int(rank + 999))
    for i = 1, #step do
      local member = step[i]
      local p = s.changes[member]
      if p == nil then
        p = permits_of(member)
      end
      if p then
        if #member ~= 21 or sub(member, 2, 4) ~= mark then
          redisson, entries = 1, entries + 1
        elseif byte(member, 17) < 128 then
          local client = sub(member, 6, 9)
          if client == own then
            held, own_first = held + p, own_first or member
          else
            weights[client] = math.max(weights[client] or 1, byte(member, 5))
          end
          entries = entries + 1
        end
      end
    end
  end
  local others = 0
  for _, w in pairs(weights) do
    others = others + w
  end
  local parties = weight + math.max(others + redisson, terms[1])
  -- Divided first: the product could be too large. Fractions are rounded up in some intervals and down in
  -- others, so that they even out in the long run.
  local rest = math.fmod(rate, parties)
  local whole = (rate - rest) / parties * weight
  local nth = (now - math.fmod(now, interval)) / interval + byte(own)
  nth, rest = math.fmod(nth, parties), rest * weight
  share_size = whole + math.floor((nth + 1) * rest / parties) - math.floor(nth * rest / parties)
  hold_ms = terms[3]
  if own_first then
    hold_ms = math.min(hold_ms, call('ZSCORE', log_key, own_first) + interval - now)
  end
  hold_ms = math.max(1, hold_ms)
  holders = {others, redisson, share_size, entries}
  if parties > weight then
    allowed = math.max(0, math.min(math.max(share_size - held, terms[2]), free))
  end
end

-- Whether a request for `p` permits passes although it is for more than the whole share: otherwise it would
-- never be served.
local function exceeds(p)
  return terms[4] == '1' and p > share_size and held < share_size
end

-- The number of `n` requests for `p` permits that are within the share, which takes them out of it.
local function take_share(p, n)
  n = math.min(n, exceeds(p) and 1 or math.floor(allowed / p))
  allowed, held = math.max(0, allowed - n * p), held + n * p
  return n
end
