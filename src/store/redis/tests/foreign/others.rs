//! The other services: what their scripts and commands do, with the time as an argument.

use redis::{Connection, Script, Value, cmd, pipe};

/// A call of another service.
#[derive(Clone, Debug)]
pub(super) enum Other {
    RedisRateGcra {
        burst: u64,
        rate: u64,
        period_s: u64,
    },
    /// `INCRBY` and `EXPIRE` of a window's key.
    Window {
        key: String,
        limit: u64,
        life_s: u64,
    },
    SlidingLog {
        limit: u64,
        interval_ms: u64,
        id: String,
    },
    /// The configuration is in a hash, from which the caller has read it.
    OrgPathCounter {
        limit: u64,
        expire: String,
    },
    OrgPathFunnel,
    Living {
        limit: u64,
        life_s: u64,
    },
    MultiWindow {
        limit: u64,
        period_s: u64,
    },
    AllowList {
        app: String,
    },
    MixerFixed {
        limit: u64,
        window_ns: u64,
    },
    MixerRolling {
        limit: u64,
        window_ns: u64,
        bucket_ns: u64,
    },
}

const GCRA: &str = r"
local interval = ARGV[3] / ARGV[2]
local now = (math.floor(ARGV[5] / 1000000) - 1483228800) + (ARGV[5] % 1000000 / 1000000)
local tat = redis.call('GET', KEYS[1])
tat = math.max(tat and tonumber(tat) or now, now)
local new_tat = tat + interval * ARGV[4]
local diff = now - (new_tat - interval * ARGV[1])
if math.floor(diff / interval + 0.5) < 0 then return 0 end
local reset = new_tat - now
if reset > 0 then redis.call('SET', KEYS[1], new_tat, 'EX', math.ceil(reset)) end
return 1";

const SLIDING_LOG: &str = r"
local limit, span, now = tonumber(ARGV[1]), ARGV[2] * 1000, tonumber(ARGV[4])
if redis.call('ZCOUNT', KEYS[1], string.format('%.0f', now - span), string.format('%.0f', now + 10000000)) >= limit then
  return false
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - span - 1000000))
redis.call('EXPIRE', KEYS[1], math.ceil(ARGV[2] / 1000) + 1)
return 1";

const ORG_PATH_COUNTER: &str = r"
local n = redis.call('INCR', KEYS[1])
if n == 1 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return n > tonumber(ARGV[1]) and 0 or 1";

const FUNNEL: &str = r"
local all, now = redis.call('HGETALL', KEYS[1]), math.floor(ARGV[1] / 1000)
local capacity, rate, left, last = tonumber(all[2]), tonumber(all[4]), tonumber(all[6]), tonumber(all[8])
local gain = math.floor((now - last) * rate)
if gain >= 1 then
  left, last = math.min(left + gain, capacity), now
end
local granted = 0
if left >= 1 then left, granted = left - 1, 1 end
redis.call('HMSET', KEYS[1], 'RemainingCapacity', left, 'LastLeakingTime', last)
return granted";

const LIVING: &str = r"
local n = tonumber(redis.call('GET', KEYS[1]) or '0')
if n + 1 > tonumber(ARGV[1]) then return 0 end
redis.call('INCRBY', KEYS[1], 1)
redis.call('EXPIRE', KEYS[1], ARGV[2])
return n + 1";

const ALLOW_LIST: &str = r"
local info, now = redis.call('HMGET', KEYS[1], 'last_mill_second', 'curr_permits', 'max_permits', 'rate', 'apps'),
  math.floor(ARGV[3] / 1000)
if not info[5] or not string.find(',' .. info[5] .. ',', ',' .. ARGV[2] .. ',', 1, true) then return 0 end
local current, most = tonumber(info[2]), tonumber(info[3])
local left = most
if info[1] then
  local gain = math.floor(((now - info[1]) / 1000) * tonumber(info[4]))
  left = math.min(gain + current, most)
  if gain > 0 then redis.call('HSET', KEYS[1], 'last_mill_second', now) end
else
  redis.call('HSET', KEYS[1], 'last_mill_second', now)
end
local granted = left - ARGV[1] >= 0
redis.call('HSET', KEYS[1], 'curr_permits', granted and left - ARGV[1] or left)
return granted and 1 or -1";

const MIXER_FIXED: &str = r"
local credit, span, wanted, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] * 1000
local used, ends = tonumber(redis.call('HGET', KEYS[1], 'token')), tonumber(redis.call('HGET', KEYS[1], 'expire'))
if not used or not ends or now >= ends then
  used = 0
  redis.call('HMSET', KEYS[1], 'token', 0, 'expire', span + now)
  redis.call('PEXPIRE', KEYS[1], span / 1000000)
end
if used + wanted > credit then return 0 end
redis.call('HMSET', KEYS[1], 'token', used + wanted)
return wanted";

const MIXER_ROLLING: &str = r"
local credit, span, length, wanted, now =
  tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] * 1000
local used, current, start = tonumber(redis.call('HGET', KEYS[1], 'token')),
  tonumber(redis.call('HGET', KEYS[1], 'bucket.token')), tonumber(redis.call('HGET', KEYS[1], 'bucket.timestamp'))
if not used or not current or not start then
  used, current, start = 0, 0, now
  redis.call('HMSET', KEYS[1], 'token', 0, 'bucket.token', 0, 'bucket.timestamp', now, 'key', 0)
end
if now - start + 1 > length then
  if current > 0 then
    local number = redis.call('HINCRBY', KEYS[1], 'key', 1)
    redis.call('ZADD', KEYS[2], start, tostring(number) .. '.' .. tostring(current))
  end
  current, start = 0, now
  redis.call('HMSET', KEYS[1], 'bucket.token', 0, 'bucket.timestamp', now)
end
local freed = 0
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], 0, now - span)) do
  freed = freed + tonumber(string.sub(member, string.find(member, '%.') + 1))
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], 0, now - span)
if freed > 0 then
  used = math.max(0, used - freed)
  redis.call('HSET', KEYS[1], 'token', used)
end
redis.call('PEXPIRE', KEYS[1], span / 1000000)
if used + wanted > credit then return 0 end
redis.call('HMSET', KEYS[1], 'token', used + wanted, 'bucket.token', current + wanted)
return wanted";

impl Other {
    /// Asks for permits on these keys at this time; whether they are granted. An error is an error of the script.
    pub(super) fn take(
        &self,
        server: &mut Connection,
        keys: &[String],
        at: i64,
        permits: u64,
    ) -> redis::RedisResult<bool> {
        let key = &keys[0];
        let run = |source: &str, server: &mut Connection, arguments: &[String]| {
            let script = Script::new(source);
            let mut call = script.prepare_invoke();
            for key in keys {
                call.key(key);
            }
            let answer: Value = call.arg(arguments).invoke(server)?;
            Ok(matches!(answer, Value::Int(1..)))
        };
        match self {
            Other::RedisRateGcra { burst, rate, period_s } => {
                run(GCRA, server, &texts([*burst, *rate, *period_s, permits, at as u64]))
            }
            Other::Window { key, limit, life_s } => {
                let mut calls = pipe();
                calls.cmd("INCRBY").arg(key).arg(permits).cmd("EXPIRE").arg(key).arg(life_s);
                let (count, _): (u64, u64) = calls.query(server)?;
                Ok(count <= *limit)
            }
            Other::SlidingLog { limit, interval_ms, id } => {
                let arguments =
                    [limit.to_string(), interval_ms.to_string(), id.clone(), at.to_string()];
                run(SLIDING_LOG, server, &arguments)
            }
            Other::OrgPathCounter { limit, expire } => {
                run(ORG_PATH_COUNTER, server, &[limit.to_string(), expire.clone()])
            }
            Other::OrgPathFunnel => run(FUNNEL, server, &texts([at as u64])),
            Other::Living { limit, life_s } => run(LIVING, server, &texts([*limit, *life_s])),
            Other::MultiWindow { limit, period_s } => {
                let ms = at / 1000;
                let mut calls = pipe();
                calls.atomic();
                calls.cmd("ZADD").arg(key).arg(ms).arg(ms);
                let cutoff = ms - *period_s as i64 * 1000;
                calls.cmd("ZREMRANGEBYSCORE").arg(key).arg(0).arg(cutoff);
                calls.cmd("ZCARD").arg(key).cmd("EXPIRE").arg(key).arg(period_s + 1);
                let (_, _, count, _): (u64, u64, u64, u64) = calls.query(server)?;
                Ok(count <= *limit)
            }
            Other::AllowList { app } => {
                run(ALLOW_LIST, server, &[permits.to_string(), app.clone(), at.to_string()])
            }
            Other::MixerFixed { limit, window_ns } => {
                run(MIXER_FIXED, server, &texts([*limit, *window_ns, permits, at as u64]))
            }
            Other::MixerRolling { limit, window_ns, bucket_ns } => {
                let numbers = [*limit, *window_ns, *bucket_ns, permits, at as u64];
                run(MIXER_ROLLING, server, &texts(numbers))
            }
        }
    }

    /// Whether it takes any number of permits at once, or one only.
    pub(super) fn takes_many(&self) -> bool {
        use Other::*;
        matches!(
            self,
            RedisRateGcra { .. }
                | Window { .. }
                | AllowList { .. }
                | MixerFixed { .. }
                | MixerRolling { .. }
        )
    }
}

fn texts<const N: usize>(numbers: [u64; N]) -> [String; N] {
    numbers.map(|number| number.to_string())
}

/// The contents of all keys, and their times to live in ms; -1 without one.
pub(super) type Contents = Vec<(String, Vec<u8>, i64)>;

pub(super) fn dump(server: &mut Connection) -> Contents {
    let mut keys: Vec<String> = cmd("KEYS").arg("*").query(server).unwrap();
    keys.sort();
    let dump = |key: String| {
        let content = cmd("DUMP").arg(&key).query(server).unwrap();
        let ms = cmd("PTTL").arg(&key).query(server).unwrap();
        (key, content, ms)
    };
    keys.into_iter().map(dump).collect()
}

pub(super) fn restore(server: &mut Connection, keys: &Contents) {
    cmd("FLUSHALL").exec(server).unwrap();
    for (key, content, ms) in keys {
        cmd("RESTORE").arg(key).arg((*ms).max(0)).arg(content.as_slice()).exec(server).unwrap();
    }
}
