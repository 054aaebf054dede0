//! What a load costs the server, and what else the machine did in the meantime.

use std::fs;

use redis::aio::MultiplexedConnection;

/// The same on every Linux that Rust and Java run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Counters at one point in time.
pub(crate) struct Probe {
    scripts: Counter,
    server_cpu: f64,
    bytes_in: f64,
    bytes_out: f64,
    /// The contestant's own CPU time, in ticks.
    client: f64,
    host: Host,
}

/// The difference between two probes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Script calls.
    pub(crate) calls: f64,
    /// The time the server spent in them, in µs.
    pub(crate) script_us: f64,
    /// All CPU time of the server, in µs, including reading, parsing and writing.
    pub(crate) server_us: f64,
    /// The CPU time of the contestant, in µs.
    pub(crate) client_us: f64,
    /// The bytes that the server read and wrote.
    pub(crate) bytes: f64,
    /// The share of the machine's CPU time that went to processes that do not take part.
    pub(crate) foreign: f64,
}

#[derive(Default)]
struct Counter {
    calls: f64,
    us: f64,
}

#[derive(Default)]
struct Host {
    total: f64,
    busy: f64,
    ours: f64,
}

impl Probe {
    /// Reads all counters. `ours` are the processes that take part, `client` the one that runs the
    /// load.
    pub(crate) async fn read(
        connection: &mut MultiplexedConnection,
        ours: &[u32],
        client: Option<u32>,
    ) -> Probe {
        let info: String = redis::cmd("INFO")
            .arg(&["commandstats", "cpu", "stats"])
            .query_async(connection)
            .await
            .expect("INFO is answered");
        let mut scripts = Counter::default();
        for command in ["evalsha", "eval"] {
            let line = field(&info, &format!("cmdstat_{command}")).unwrap_or_default();
            for part in line.split(',') {
                match part.split_once('=') {
                    Some(("calls", calls)) => scripts.calls += float(calls),
                    Some(("usec", us)) => scripts.us += float(us),
                    _ => {}
                }
            }
        }
        let total = |name| field(&info, name).map_or(0.0, float);
        Probe {
            scripts,
            server_cpu: total("used_cpu_user") + total("used_cpu_sys"),
            bytes_in: total("total_net_input_bytes"),
            bytes_out: total("total_net_output_bytes"),
            client: client.map_or(0.0, process_ticks),
            host: Host::read(ours),
        }
    }

    /// The difference since then.
    pub(crate) fn until(&self, later: &Probe) -> Usage {
        let total = later.host.total - self.host.total;
        let busy = later.host.busy - self.host.busy;
        let ours = later.host.ours - self.host.ours;
        Usage {
            calls: later.scripts.calls - self.scripts.calls,
            script_us: later.scripts.us - self.scripts.us,
            server_us: 1e6 * (later.server_cpu - self.server_cpu),
            client_us: 1e6 / TICKS_PER_SECOND * (later.client - self.client),
            bytes: later.bytes_in + later.bytes_out - self.bytes_in - self.bytes_out,
            foreign: if total > 0.0 { ((busy - ours) / total).max(0.0) } else { 0.0 },
        }
    }
}

impl Host {
    /// In the kernel's ticks; all zero if there is no `/proc`.
    fn read(ours: &[u32]) -> Host {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks: Vec<f64> =
            stat.lines().next().unwrap_or_default().split_whitespace().skip(1).map(float).collect();
        // user nice system idle iowait irq softirq steal, then guests, which user counts already.
        let all = &ticks[..ticks.len().min(8)];
        let busy = [0, 1, 2, 7].iter().filter_map(|&index| all.get(index)).sum();
        let ours = ours.iter().map(|id| process_ticks(*id)).sum();
        Host { total: all.iter().sum(), busy, ours }
    }
}

fn process_ticks(id: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The program's name, in brackets, can contain any character.
    let (_, rest) = stat.rsplit_once(')').unwrap_or_default();
    rest.split_whitespace().skip(11).take(2).map(float).sum()
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

fn float(text: &str) -> f64 {
    text.parse().unwrap_or(0.0)
}
