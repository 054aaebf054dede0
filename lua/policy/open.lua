-- A limiter of several that are decided together (policy/all.lua), which writes it once all have granted.
return {
  now = now, limit = limit, requests = requests, is_queue = kind == 'q',
  available = available, take = take, wait = wait, mark = mark,
  is_replay = is_replay, rest = total, given = given, given_f = given_f,
  write = function(it)
    granted, has_denied = it.granted, it.is_short
