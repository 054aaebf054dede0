//! The documented behaviour of Redisson, statement by statement, on every
//! release under test.

use compat_tests::entry::Entry;
use compat_tests::keys::Keys;
use compat_tests::oracle::campaign::releases;
use compat_tests::oracle::database::Database;
use compat_tests::oracle::lockstep::{Side, number};
use compat_tests::oracle::ops::{Condition, ErrorKind, Mode, Op, Outcome, Rate};
use compat_tests::oracle::replay::{At, Oracle};
use compat_tests::oracle::state::{Content, Key, State, keys_of, ttl_equal};
use compat_tests::oracle::subject::{Site, Subject};
use compat_tests::oracle::world::client_ids;
use compat_tests::server::Server;

const NAME: &str = "api";
/// Any time will do: the test sets the oracle's clock.
const T: u64 = 1_800_000_000_000;
const I: u64 = 60_000;

/// One release, with two clients on an empty database.
struct Stage {
    side: Side<Oracle, Database>,
    clients: Vec<String>,
    keys: Vec<String>,
    mode: Mode,
}

impl Stage {
    fn at(&self, now: u64) -> At<'_> {
        self.side.subject.at(0, NAME, now)
    }

    fn rate(&self, rate: i64) -> Rate {
        Rate::new(self.mode, rate, I as i64)
    }

    fn has(&self, op: &Op) -> bool {
        self.side.subject.supports(op.shape())
    }

    fn since(&self, release: &str) -> bool {
        number(self.side.subject.release()) >= number(release)
    }

    async fn state(&self) -> State {
        self.side.site.capture(&self.keys).await
    }

    /// The value of the first client, and the score and permits of its entries.
    async fn budget(&self) -> (Option<i64>, Vec<(i64, u32)>) {
        let budget = self.state().await.budget(NAME, &self.clients[0]);
        let entries = budget.entries.into_iter();
        (budget.value, entries.map(|(at, p)| (at - T as i64, p.expect("a grant"))).collect())
    }

    fn own(&self) -> Option<&str> {
        (self.mode == Mode::PerClient).then_some(&self.clients[0])
    }

    fn value(&self) -> String {
        Keys::new(NAME).value(self.own())
    }

    fn log(&self) -> String {
        Keys::new(NAME).log(self.own())
    }

    async fn edit(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state().await;
        change(&mut state);
        assert!(self.side.site.restore(&self.keys, &state).await);
    }

    async fn ttl(&self, key: &str) -> Option<u64> {
        self.state().await.0.get(key).and_then(|key| key.ttl)
    }
}

/// Runs `check` in both modes on every release, each time on an empty database.
async fn everywhere(check: impl AsyncFn(&Stage)) {
    let server = Server::start().await;
    let clients = client_ids(2);
    for release in releases() {
        for mode in [Mode::Overall, Mode::PerClient] {
            let side = Oracle::on(&server, 0, &release, &clients).await;
            side.site.clear().await;
            check(&Stage {
                side,
                clients: clients.clone(),
                keys: keys_of(&[NAME, "new"], &clients),
                mode,
            })
            .await;
        }
    }
}

fn close(ttl: Option<u64>, expected: u64) -> bool {
    ttl_equal(ttl, Some(expected))
}

#[tokio::test]
async fn an_acquire_grants_denies_and_counts_entries_at_the_cutoff_as_expired() {
    everywhere(async |s| {
        let none = s.at(T).try_acquire_once(1).await;
        assert_eq!(none.failure(), Some(ErrorKind::NotInitialized));
        assert_eq!(s.at(T).try_set_rate(s.rate(10)).await, Outcome::Flag(true));
        let much = s.at(T).try_acquire_once(11).await;
        assert_eq!(much.failure(), Some(ErrorKind::ExceedsRate));
        assert_eq!(s.budget().await, (None, vec![]));
        assert_eq!(s.at(T).try_acquire_once(4).await, Outcome::Granted);
        assert_eq!(s.at(T + 100).try_acquire_once(5).await, Outcome::Granted);
        assert_eq!(s.budget().await, (Some(1), vec![(0, 4), (100, 5)]));
        let wait = 3 + I as i64 - 200;
        assert_eq!(s.at(T + 200).try_acquire_once(2).await, Outcome::Denied(wait));
        assert_eq!(s.at(T + I - 1).try_acquire_once(2).await, Outcome::Denied(4));
        assert_eq!(s.budget().await.1.len(), 2);
        // At the cutoff the first entry is dropped, although this request is denied.
        assert_eq!(s.at(T + I).try_acquire_once(6).await, Outcome::Denied(103));
        assert_eq!(s.budget().await, (Some(5), vec![(100, 5)]));
    })
    .await;
}

#[tokio::test]
async fn a_plain_set_drops_the_values_own_time_to_live() {
    everywhere(async |s| {
        s.at(T).try_set_rate(s.rate(10)).await;
        s.at(T).try_acquire_once(4).await;
        s.at(T + 10).try_acquire_once(1).await;
        s.edit(|state| {
            for key in [s.value(), s.log()] {
                state.0.get_mut(&key).unwrap().ttl = Some(500_000);
            }
        })
        .await;
        s.at(T + 20).try_acquire_once(1).await;
        assert!(close(s.ttl(&s.value()).await, 500_000));
        s.at(T + I).try_acquire_once(1).await;
        assert_eq!(s.ttl(&s.value()).await, None);
        assert!(close(s.ttl(&s.log()).await, 500_000));
    })
    .await;
}

#[tokio::test]
async fn even_denials_copy_the_time_to_live_of_the_hash() {
    everywhere(async |s| {
        s.at(T).try_set_rate(s.rate(2)).await;
        s.at(T).try_acquire_once(2).await;
        s.edit(|state| state.0.get_mut(NAME).unwrap().ttl = Some(500_000)).await;
        assert!(matches!(s.at(T + 1).try_acquire_once(1).await, Outcome::Denied(_)));
        assert!(close(s.ttl(&s.value()).await, 500_000));
        assert!(close(s.ttl(&s.log()).await, 500_000));
    })
    .await;
}

#[tokio::test]
async fn every_acquire_renews_the_keep_alive() {
    everywhere(async |s| {
        let rate = s.rate(2).keep_alive(900_000);
        if !s.has(&Op::TrySetRate(rate)) {
            return;
        }
        assert_eq!(s.at(T).try_set_rate(rate).await, Outcome::Flag(true));
        assert!(close(s.ttl(NAME).await, 900_000));
        s.edit(|state| state.0.get_mut(NAME).unwrap().ttl = Some(500_000)).await;
        assert_eq!(s.at(T).try_set_rate(rate).await, Outcome::Flag(false));
        assert!(close(s.ttl(NAME).await, 500_000));
        for granted in [true, false] {
            let outcome = s.at(T + 1).try_acquire_once(2).await;
            assert_eq!(outcome == Outcome::Granted, granted);
            for key in [NAME.into(), s.value(), s.log()] {
                assert!(close(s.ttl(&key).await, 900_000), "{key}");
                s.edit(|state| state.0.get_mut(&key).unwrap().ttl = None).await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn available_permits_writes_what_it_answers() {
    everywhere(async |s| {
        let none = s.at(T).available_permits().await;
        assert_eq!(none.failure(), Some(ErrorKind::NotInitialized));
        s.at(T).try_set_rate(s.rate(10)).await;
        s.edit(|state| state.0.get_mut(NAME).unwrap().ttl = Some(500_000)).await;
        assert_eq!(s.at(T).available_permits().await, Outcome::Count(10));
        assert_eq!(s.budget().await, (Some(10), vec![]));
        assert_eq!(s.ttl(&s.value()).await, None);
        s.at(T).try_acquire_once(4).await;
        s.edit(|state| state.0.get_mut(&s.value()).unwrap().content = Content::Text("9".into()))
            .await;
        // Neither capped nor recounted.
        assert_eq!(s.at(T + I).available_permits().await, Outcome::Count(13));
        assert_eq!(s.budget().await, (Some(13), vec![]));
    })
    .await;
}

#[tokio::test]
async fn try_set_rate_fills_what_is_missing() {
    everywhere(async |s| {
        s.edit(|state| {
            let fields = [("type".to_owned(), "0".to_owned())].into();
            let content = Content::Hash(fields);
            state.0.insert(NAME.into(), Key { content, ttl: None });
        })
        .await;
        assert_eq!(s.at(T).try_set_rate(s.rate(10)).await, Outcome::Flag(false));
        let state = s.state().await;
        assert_eq!(state.field(NAME, "rate"), Some("10"));
        assert_eq!(state.field(NAME, "type"), Some("0"));
        let keep_alive = s.since("3.38.0").then_some("0");
        assert_eq!(state.field(NAME, "keepAliveTime"), keep_alive);
    })
    .await;
}

#[tokio::test]
async fn set_rate_clears_the_new_mode() {
    everywhere(async |s| {
        s.at(T).try_set_rate(s.rate(10)).await;
        s.at(T).try_acquire_once(4).await;
        s.edit(|state| state.0.get_mut(NAME).unwrap().ttl = Some(500_000)).await;
        assert_eq!(s.at(T).set_rate(s.rate(7)).await, Outcome::Done);
        let cleared = s.mode == Mode::Overall || s.since("3.22.1");
        assert_eq!(s.budget().await.0.is_none(), cleared);
        // The old time to live stays (8).
        assert!(close(s.ttl(NAME).await, 500_000));
    })
    .await;
}

#[tokio::test]
async fn rate_args_keep_or_clear() {
    everywhere(async |s| {
        let update = |rate, keep| Op::UpdateRate(rate, keep);
        if !s.has(&update(s.rate(1), true)) {
            return;
        }
        assert_eq!(s.at(T).update_rate(s.rate(10), true).await, Outcome::Flag(false));
        assert!(s.state().await.0.is_empty());
        s.at(T).try_set_rate(s.rate(10)).await;
        s.at(T).try_acquire_once(4).await;
        s.at(T + 100).try_acquire_once(5).await;
        // Entries as old as the new interval are dropped.
        let shorter = Rate { interval_ms: 50, ..s.rate(12) };
        assert_eq!(
            s.at(T + 150).update_rate(Rate { interval_ms: 51, ..shorter }, true).await,
            Outcome::Flag(true)
        );
        assert_eq!(s.budget().await, (Some(7), vec![(100, 5)]));
        assert_eq!(s.at(T + 150).update_rate(shorter, true).await, Outcome::Flag(true));
        assert_eq!(s.budget().await, (Some(12), vec![]));
        s.at(T + 150).try_acquire_once(12).await;
        assert_eq!(s.at(T + 151).set_rate_args(s.rate(3), true).await, Outcome::Done);
        assert_eq!(s.budget().await, (Some(0), vec![(150, 12)]));
        assert_eq!(s.at(T + 151).set_rate_args(s.rate(3), false).await, Outcome::Done);
        assert_eq!(s.budget().await, (None, vec![]));
        // Another mode: all four keys are deleted, even with `keepState`.
        s.at(T + 151).try_acquire_once(1).await;
        let other = match s.mode {
            Mode::Overall => Mode::PerClient,
            Mode::PerClient => Mode::Overall,
        };
        let rate = Rate { mode: other, ..s.rate(3) };
        assert_eq!(s.at(T + 152).update_rate(rate, true).await, Outcome::Flag(true));
        assert_eq!(s.state().await.0.len(), 1);
        // Keeping the state of an unused limiter.
        let rate = Rate { mode: other, ..s.rate(4) };
        s.at(T + 153).update_rate(rate, true).await;
        let own = (other == Mode::PerClient).then_some(s.clients[0].as_str());
        let state = s.state().await;
        assert_eq!(state.0[&Keys::new(NAME).value(own)].content, Content::Text("4".into()));
    })
    .await;
}

#[tokio::test]
async fn release_leaves_the_log_unchanged() {
    everywhere(async |s| {
        if !s.has(&Op::Release(1)) {
            return;
        }
        let none = s.at(T).release(1).await;
        assert_eq!(none.failure(), Some(ErrorKind::NotInitialized));
        assert_eq!(s.at(T).release(0).await, Outcome::Done);
        let negative = s.at(T).release(-1).await;
        assert_eq!(negative.failure(), Some(ErrorKind::InvalidArgument));
        s.at(T).try_set_rate(s.rate(10)).await;
        s.edit(|state| state.0.get_mut(NAME).unwrap().ttl = Some(500_000)).await;
        s.at(T).release(3).await;
        assert_eq!(s.budget().await, (Some(10), vec![]));
        assert!(close(s.ttl(&s.value()).await, 500_000));
        s.at(T).try_acquire_once(4).await;
        s.at(T + 2 * I).release(3).await;
        assert_eq!(s.budget().await, (Some(9), vec![(0, 4)]));
    })
    .await;
}

#[tokio::test]
async fn extreme_numbers_of_permits() {
    everywhere(async |s| {
        s.at(T).try_set_rate(s.rate(10)).await;
        assert_eq!(s.at(T).try_acquire_once(0).await, Outcome::Granted);
        assert_eq!(s.at(T + 1).try_acquire_once(-2).await, Outcome::Granted);
        assert_eq!(s.budget().await, (Some(12), vec![(0, 0), (1, u32::MAX - 1)]));
        s.at(T).delete().await;
        let many = 9_000_000_000;
        s.at(T).try_set_rate(s.rate(many)).await;
        s.at(T).try_acquire_once((1 << 32) + 5).await;
        assert_eq!(s.budget().await, (Some(many - (1 << 32) - 5), vec![(0, 5)]));
        s.at(T).delete().await;
        s.at(T).try_set_rate(s.rate(100_000_000_000_000_000)).await;
        assert_eq!(s.at(T).try_acquire_once(1).await, Outcome::Granted);
        let again = s.at(T + I).try_acquire_once(1).await;
        let value = s.state().await.0.remove(&s.value()).unwrap().content;
        if again == Outcome::Granted {
            // Valkey writes such a sum as an integer.
            assert_eq!(value, Content::Text("99999999999999999".into()));
            return;
        }
        // Redis up to 7.0 does not.
        assert_eq!(again.failure(), Some(ErrorKind::Other));
        assert_eq!(value, Content::Text("1e+17".into()));
        let broken = s.at(T + 9 * I).try_acquire_once(1).await;
        assert_eq!(broken.failure(), Some(ErrorKind::Other));
    })
    .await;
}

#[tokio::test]
async fn an_entry_without_permits_is_never_dropped() {
    everywhere(async |s| {
        s.at(T).try_set_rate(s.rate(10)).await;
        s.at(T).try_acquire_once(0).await;
        s.at(T + 2 * I).try_acquire_once(1).await;
        assert_eq!(s.budget().await.1, [(0, 0), (2 * I as i64, 1)]);
    })
    .await;
}

#[tokio::test]
async fn expiry_acts_on_all_keys_and_rename_on_one() {
    everywhere(async |s| {
        let missing = s.at(T).expire(500_000, None).await;
        assert_eq!(missing, Outcome::Flag(false));
        s.at(T).try_set_rate(s.rate(10)).await;
        s.at(T).try_acquire_once(4).await;
        let keys = [NAME.to_owned(), s.value(), s.log()];
        assert_eq!(s.at(T).expire(500_000, None).await, Outcome::Flag(true));
        for key in &keys {
            assert!(close(s.ttl(key).await, 500_000), "{key}");
        }
        assert_eq!(s.at(T).expire_at(650_000, None).await, Outcome::Flag(true));
        for key in &keys {
            assert!(close(s.ttl(key).await, 650_000), "{key}");
        }
        assert_eq!(s.at(T).clear_expire().await, Outcome::Flag(true));
        assert_eq!(s.at(T).clear_expire().await, Outcome::Flag(false));
        for key in &keys {
            assert_eq!(s.ttl(key).await, None, "{key}");
        }
        assert_eq!(s.at(T).rename("new").await, Outcome::Done);
        let state = s.state().await;
        let left: Vec<_> = state.0.keys().map(String::as_str).collect();
        assert_eq!(left.len(), 3);
        assert!(left.contains(&"new") && !left.contains(&NAME));
        assert_eq!(s.at(T).delete().await, Outcome::Flag(true));
        assert_eq!(s.state().await.0.len(), 1);
        assert_eq!(s.at(T).delete().await, Outcome::Flag(false));
    })
    .await;
}

#[tokio::test]
async fn conditions_apply_to_each_key() {
    everywhere(async |s| {
        if !s.has(&Op::Expire(1, Some(Condition::Nx))) {
            // Redis before 7.0.
            return;
        }
        s.at(T).try_set_rate(s.rate(10)).await;
        s.at(T).try_acquire_once(4).await;
        assert_eq!(s.at(T).expire(500_000, Some(Condition::Xx)).await, Outcome::Flag(false));
        assert_eq!(s.at(T).expire(500_000, Some(Condition::Nx)).await, Outcome::Flag(true));
        for key in &[NAME.to_owned(), s.value(), s.log()] {
            assert!(close(s.ttl(key).await, 500_000), "{key}");
        }
        // True if any of them changes.
        s.edit(|state| state.0.get_mut(&s.value()).unwrap().ttl = None).await;
        assert_eq!(s.at(T).expire(700_000, Some(Condition::Nx)).await, Outcome::Flag(true));
        assert!(close(s.ttl(NAME).await, 500_000));
        assert!(close(s.ttl(&s.value()).await, 700_000));
        assert_eq!(s.at(T).expire_at(600_000, Some(Condition::Gt)).await, Outcome::Flag(true));
        assert_eq!(s.at(T).expire_at(650_000, Some(Condition::Lt)).await, Outcome::Flag(true));
        assert!(close(s.ttl(&s.value()).await, 650_000));
    })
    .await;
}

#[tokio::test]
async fn a_value_above_the_rate_is_recounted() {
    everywhere(async |s| {
        s.at(T).try_set_rate(s.rate(10)).await;
        s.at(T).try_acquire_once(2).await;
        s.at(T + 10).try_acquire_once(5).await;
        s.edit(|state| state.0.get_mut(&s.value()).unwrap().content = Content::Text("9".into()))
            .await;
        s.at(T + I).try_acquire_once(1).await;
        let counted = if s.since("3.35.0") { 5 } else { 1 };
        assert_eq!(s.budget().await.0, Some(10 - counted - 1));
    })
    .await;
}

#[tokio::test]
async fn a_foreign_entry_is_an_error_as_soon_as_it_is_read() {
    everywhere(async |s| {
        s.at(T).try_set_rate(s.rate(10)).await;
        s.at(T).try_acquire_once(2).await;
        let whole = Entry::encode(&[7; 16], 1);
        s.edit(|state| {
            let log = state.0.get_mut(&s.log()).unwrap();
            let Content::Log(entries) = &mut log.content else { panic!("a log") };
            entries.push(((T + 5) as f64, whole[..20].to_vec()));
        })
        .await;
        // Not read while it is live; after that it blocks every call.
        assert_eq!(s.at(T + 6).try_acquire_once(1).await, Outcome::Granted);
        let cut = s.at(T + 5 + I).try_acquire_once(1).await;
        assert_eq!(cut.failure(), Some(ErrorKind::Other));
        let later = s.at(T + 50 * I).try_acquire_once(1).await;
        assert_eq!(later.failure(), Some(ErrorKind::Other));
    })
    .await;
}

#[tokio::test]
async fn get_config_returns_the_hash() {
    everywhere(async |s| {
        assert_eq!(s.at(T).get_config().await, Outcome::Config(None));
        s.at(T).try_set_rate(s.rate(10)).await;
        let Outcome::Config(Some(hash)) = s.at(T).get_config().await else { panic!("no config") };
        assert_eq!(hash["rate"], "10");
        assert_eq!(hash["interval"], I.to_string());
        assert_eq!(hash["type"], if s.mode == Mode::Overall { "0" } else { "1" });
    })
    .await;
}
