//! Whether the grants of the tasks match what the server recorded.

use compat_tests::entry::Entry;
use compat_tests::keys::Keys;
use redis::aio::MultiplexedConnection;

/// The logs of some limiters, while none of their entries has expired.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    /// The permits in them.
    pub(crate) permits: u64,
    /// How much the limiters' values are below their rates.
    pub(crate) lacking: i64,
    /// The memory of the logs.
    pub(crate) bytes: f64,
}

impl Logs {
    /// Reads the logs of the limiters with these names, each with this rate.
    pub(crate) async fn read(
        connection: &mut MultiplexedConnection,
        names: &[String],
        rate: i64,
    ) -> Logs {
        let mut logs = Logs::default();
        for names in names.chunks(100) {
            let mut questions = redis::pipe();
            for name in names {
                let keys = Keys::new(name.as_str());
                questions.cmd("GET").arg(keys.value(None));
                questions.cmd("ZRANGE").arg(keys.log(None)).arg(0).arg(-1);
                questions.cmd("MEMORY").arg("USAGE").arg(keys.log(None)).arg("SAMPLES").arg(0);
            }
            let answers: Vec<redis::Value> =
                questions.query_async(connection).await.expect("the logs can be read");
            for answer in answers.chunks(3) {
                let value: Option<i64> = read(&answer[0]);
                let members: Vec<Vec<u8>> = read(&answer[1]);
                let bytes: Option<f64> = read(&answer[2]);
                logs.lacking += value.map_or(0, |value| rate - value);
                logs.permits +=
                    members.iter().map(|member| Entry::decode(member).permits()).sum::<u64>();
                logs.bytes += bytes.unwrap_or(0.0);
            }
        }
        logs
    }

    /// Why this cannot be the log of this many granted permits.
    pub(crate) fn imbalance(&self, granted: u64) -> Option<String> {
        let balances = self.permits == granted && self.lacking == granted as i64;
        (!balances).then(|| {
            format!(
                "{granted} permits were granted, the log has {}, the value is lower by {}",
                self.permits, self.lacking
            )
        })
    }
}

fn read<T: redis::FromRedisValue>(value: &redis::Value) -> T {
    redis::from_redis_value_ref(value).unwrap_or_else(|e| panic!("the server answers: {e}"))
}
