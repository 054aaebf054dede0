//! `doctor --fix` beside live traffic: whatever is damaged meanwhile, no interval has more than the rate.

use std::time::Duration;

use compat_tests::entry::Entry;
use compat_tests::keys::Keys;
use compat_tests::ledger::{Grant, Ledger};
use compat_tests::server::Server;
use compat_tests::watch::{Seen, Watch};
use redis::cmd;
use redisson_rate_limiter::{Client, Clock, Rate};
use tokio::time::Instant;

use crate::seed::now_ms;
use crate::tool::Tool;

const RATE: u64 = 40;
const INTERVAL: Duration = Duration::from_millis(250);

/// Permits that nobody was granted, of this crate's clients.
fn is_debt(seen: &Seen) -> bool {
    matches!(&seen.entry, Entry::Grant { id, .. } if seen.entry.is_of_this_crate() && id[15] >= 128)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repairs_beside_traffic_grant_nothing_twice() {
    let server = Server::start().await;
    let keys = Keys::new("api");
    let setup = Client::connect(&server.url()).await.unwrap();
    let limiter = setup.limiter("api").unwrap();
    limiter.set_rate(Rate::overall(RATE, INTERVAL).unwrap()).await.unwrap();
    let watch = Watch::start(&server, vec![keys.log(None)], Duration::from_millis(15)).await;
    let end = Instant::now() + Duration::from_secs(3);

    // Two clients that take what they can get.
    let mut callers = Vec::new();
    for _ in 0..2 {
        let client = Client::builder().clock(Clock::server()).connect(&server.url()).await.unwrap();
        for _ in 0..4 {
            let limiter = client.limiter("api").unwrap();
            callers.push(tokio::spawn(async move {
                let mut grants = Vec::new();
                while Instant::now() < end {
                    let earliest_ms = now_ms();
                    let granted = limiter.try_acquire_now(1).await.unwrap().is_granted();
                    if granted {
                        let latest_ms = now_ms();
                        grants.push(Grant {
                            who: "a caller".into(),
                            permits: 1,
                            earliest_ms,
                            latest_ms,
                        });
                    }
                    tokio::time::sleep(Duration::from_millis(if granted { 1 } else { 4 })).await;
                }
                grants
            }));
        }
    }
    // What takes permits away, or what is known of them; never what makes more of them.
    let mut connection = server.connect().await;
    let damage = tokio::spawn(async move {
        let (value, log) = (keys.value(None), keys.log(None));
        let commands = [
            cmd("DEL").arg(&value).take(),
            cmd("DECRBY").arg(&value).arg(20).take(),
            cmd("ZREMRANGEBYRANK").arg(&log).arg(0).arg(2).take(),
        ];
        for command in commands.iter().cycle() {
            if Instant::now() >= end {
                break;
            }
            let _: i64 = command.query_async(&mut connection).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    // The repairs: by the program, and as often as possible by the library.
    let repairs = tokio::spawn(async move {
        let (mut needed, mut done) = (0, 0);
        while Instant::now() < end {
            needed += u32::from(limiter.repair().await.unwrap().is_needed());
            limiter.remove_unused(Duration::ZERO).await.unwrap();
            done += 1;
        }
        (needed, done)
    });
    let tool = Tool::on(&server);
    let mut runs = 0;
    while Instant::now() < end {
        let ran = tool.run(&["doctor", "api", "--fix", "--yes"]).await;
        assert!(matches!(ran.code, 0 | 1), "{ran:?}");
        runs += 1;
    }
    // What was granted and removed at once is in no log.
    let mut by_callers = Ledger::new(RATE, INTERVAL.as_millis() as u64);
    for caller in callers {
        by_callers = by_callers.record(caller.await.unwrap());
    }
    damage.await.unwrap();
    let (needed, done) = repairs.await.unwrap();
    let seen = watch.finish().await;
    let grants: Vec<&Seen> = seen.iter().filter(|seen| !is_debt(seen)).collect();
    let ledger = Ledger::new(RATE, INTERVAL.as_millis() as u64).strict().record(grants);
    let balance = ledger.balance();
    eprintln!("{runs} runs, {needed} of {done} repairs needed; {balance:?}");
    assert!(runs >= 3 && needed >= 3 && balance.total > 4 * RATE, "nothing was raced: {balance:?}");
    ledger.assert_sound();
    by_callers.assert_sound();
}
