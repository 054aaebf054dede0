//! The lower bound of the benchmarks: closed loops of an empty script, one call at a time each, over
//! one connection like the crate's own.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::join_all;
use hdrhistogram::Histogram;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo};

use crate::peer::Load;

/// As in the crate: room for the requests of thousands of tasks at once.
const PIPELINE: usize = 8192;

const SCRIPT: &str = "return 0";

/// A connection to a server that has the script loaded.
#[derive(Clone, Debug)]
pub struct Empty {
    connection: MultiplexedConnection,
    digest: String,
}

impl Empty {
    /// Connects, with `TCP_NODELAY`.
    pub async fn connect(url: &str) -> redis::RedisResult<Empty> {
        let info = url.into_connection_info()?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(10)))
            .set_response_timeout(Some(Duration::from_secs(10)))
            .set_pipeline_buffer_size(PIPELINE);
        let mut connection = Client::open(info.set_tcp_settings(tcp))?
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let digest =
            redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query_async(&mut connection).await?;
        Ok(Empty { connection, digest })
    }

    /// The same as a peer's `load`, with the script instead of a limiter: every call is granted.
    /// The loops are tasks of the current runtime, which need not be the one that drives the
    /// connection, that is the one in which it was made.
    pub async fn load(&self, tasks: u64, ms: u64) -> Load {
        let latencies = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3);
        let latencies = latencies.expect("valid bounds");
        let latencies = Arc::new(Mutex::new(latencies));
        let begun = Instant::now();
        let end = begun + Duration::from_millis(ms);
        let tasks = (0..tasks).map(|_| {
            let latencies = latencies.clone();
            let mut connection = self.connection.clone();
            let mut call = redis::cmd("EVALSHA");
            call.arg(&self.digest).arg(0);
            tokio::spawn(async move {
                let (mut granted, mut errors) = (0, 0);
                let mut from = Instant::now();
                while from < end {
                    match call.query_async::<i64>(&mut connection).await {
                        Ok(_) => granted += 1,
                        Err(_) => errors += 1,
                    }
                    let now = Instant::now();
                    let mut latencies = latencies.lock().expect("the histogram");
                    latencies.saturating_record((now - from).as_nanos() as u64);
                    from = now;
                }
                (granted, errors)
            })
        });
        let (mut granted, mut errors) = (0, 0);
        for task in join_all(tasks.collect::<Vec<_>>()).await {
            let (g, e) = task.expect("a task ends");
            granted += g;
            errors += e;
        }
        let elapsed_ms = begun.elapsed().as_secs_f64() * 1e3;
        let latencies = latencies.lock().expect("the histogram");
        Load {
            granted,
            denied: 0,
            errors,
            elapsed_ms,
            p50_us: latencies.value_at_quantile(0.5) as f64 / 1e3,
            p99_us: latencies.value_at_quantile(0.99) as f64 / 1e3,
            max_us: latencies.max() as f64 / 1e3,
        }
    }
}
