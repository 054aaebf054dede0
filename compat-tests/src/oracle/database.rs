//! A database of a Redis server as a [`Site`].

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};

use super::state::{Content, Key, State};
use super::subject::{Fate, Site};

/// A database of a Redis server as a [`Site`].
#[derive(Clone, Debug)]
pub struct Database {
    connection: MultiplexedConnection,
    capture: String,
}

/// Type, time to live and content of each key.
const CAPTURE: &str = "local all = {}
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  local content = false
  if kind == 'hash' then content = redis.call('HGETALL', key)
  elseif kind == 'string' then content = redis.call('GET', key)
  elseif kind == 'zset' then content = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  end
  all[i] = {kind, redis.call('PTTL', key), content}
end
return all";

impl Database {
    /// The database that the connection has selected.
    pub async fn new(mut connection: MultiplexedConnection) -> Database {
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(CAPTURE).take();
        Database {
            capture: load.query_async(&mut connection).await.expect("a script is loaded"),
            connection,
        }
    }

    async fn send(&self, pipeline: &Pipeline) {
        let () = pipeline
            .query_async(&mut self.connection.clone())
            .await
            .expect("the server executes the harness's commands");
    }
}

impl Site for Database {
    async fn clear(&self) {
        self.send(redis::pipe().cmd("FLUSHDB").ignore()).await;
    }

    async fn capture(&self, keys: &[String]) -> State {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.capture).arg(keys.len()).arg(keys);
        let found: Vec<(String, i64, Value)> = command
            .query_async(&mut self.connection.clone())
            .await
            .expect("the server shows the keys");
        let there = keys.iter().zip(found).filter(|(_, (kind, ..))| kind != "none");
        State(
            there
                .map(|(name, (kind, ttl, content))| {
                    let key = Key { content: decode(kind, content), ttl: u64::try_from(ttl).ok() };
                    (name.clone(), key)
                })
                .collect(),
        )
    }

    async fn advance(&self, _now: u64, fates: &[(String, Fate)]) {
        if fates.is_empty() {
            return;
        }
        let mut pipeline = redis::pipe();
        for (name, fate) in fates {
            match fate {
                Fate::Gone => pipeline.cmd("DEL").arg(name).ignore(),
                Fate::Left(ms) => pipeline.cmd("PEXPIRE").arg(name).arg(ms).ignore(),
            };
        }
        self.send(&pipeline).await;
    }

    async fn restore(&self, keys: &[String], state: &State) -> bool {
        let mut pipeline = redis::pipe();
        pipeline.cmd("DEL").arg(keys).ignore();
        for (name, key) in &state.0 {
            match &key.content {
                Content::Hash(fields) => {
                    pipeline.cmd("HSET").arg(name);
                    for (field, value) in fields {
                        pipeline.arg(field).arg(value);
                    }
                }
                Content::Text(text) => {
                    pipeline.cmd("SET").arg(name).arg(text);
                }
                Content::Log(entries) => {
                    pipeline.cmd("ZADD").arg(name);
                    for (score, member) in entries {
                        pipeline.arg(*score).arg(member);
                    }
                }
                Content::Other(_) => return false,
            }
            pipeline.ignore();
            if let Some(ttl) = key.ttl {
                pipeline.cmd("PEXPIRE").arg(name).arg(ttl).ignore();
            }
        }
        self.send(&pipeline).await;
        true
    }
}

fn decode(kind: String, content: Value) -> Content {
    let read = "a reply of the type asked for";
    match kind.as_str() {
        "hash" => Content::Hash(redis::from_redis_value(content).expect(read)),
        "string" => {
            let bytes: Vec<u8> = redis::from_redis_value(content).expect(read);
            Content::Text(String::from_utf8_lossy(&bytes).into_owned())
        }
        "zset" => {
            let flat: Vec<(Vec<u8>, f64)> = redis::from_redis_value(content).expect(read);
            Content::Log(flat.into_iter().map(|(member, score)| (score, member)).collect())
        }
        _ => Content::Other(kind),
    }
}
