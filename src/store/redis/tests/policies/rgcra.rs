//! Buckets with the configuration of Redisson's `RGcra`, which only servers have.

use super::*;
use crate::client::Client;
use crate::error::ErrorKind;

fn configured(max_burst: u64, rate: u64, ms: u64) -> Policy {
    Policy::rgcra(max_burst, rate, Duration::from_millis(ms)).unwrap()
}

impl World {
    fn of_rgcra() -> Self {
        World { keys: Keys::of_rgcra("api"), ..World::new() }
    }

    /// Writes the configuration as Redisson does.
    fn configure(&mut self, fields: &[(&str, &str)]) {
        let key = &*self.keys.value;
        let mut connection = self.raw.borrow_mut();
        redis::cmd("DEL").arg(key).exec(&mut connection).unwrap();
        redis::cmd("HSET").arg(key).arg(fields).exec(&mut connection).unwrap();
    }

    fn takes(&mut self, at: i64, permits: u64) -> Result<Outcome, Error> {
        let lane = self.lane("aaaaaaaa0");
        let (policy, groups) = (configured(0, 1, 1000), vec![request(permits)]);
        let (keys, of) = (self.keys.clone(), Followed { rules: policy, is_stored: true });
        let reply = self.on_server(&PolicyCall::alone(keys, of, Some(at), lane, groups))?;
        Ok(only(&reply))
    }
}

#[test]
fn each_call_follows_the_configuration() {
    let mut world = World::of_rgcra();
    assert_eq!(world.takes(T0, 1).unwrap_err().kind(), ErrorKind::NotInitialized);
    // 3 permits in 1 s follow each other after 333333 us.
    let config = [("maxBurst", "4"), ("rate", "3"), ("period", "1")];
    world.configure(&config);
    assert_eq!(world.takes(T0, 5).unwrap(), Outcome::Granted);
    let wait = |us| Outcome::Refused(Wait { us, at_least: false }, 0);
    assert_eq!(world.takes(T0, 1).unwrap(), wait(333_333));
    // The same values change nothing, others begin anew.
    world.configure(&config);
    assert_eq!(world.takes(T0 + 1, 1).unwrap(), wait(333_332));
    world.configure(&[("maxBurst", "1"), ("rate", "1"), ("period", "0.25")]);
    assert_eq!(world.takes(T0 + 2, 2).unwrap(), Outcome::Granted);
    assert_eq!(world.takes(T0 + 2, 1).unwrap(), wait(250_000));
    assert_eq!(world.takes(T0 + 2, 3).unwrap(), Outcome::ExceedsRate);
}

#[test]
fn what_is_given_back_under_another_configuration_is_nothing() {
    let mut world = World::of_rgcra();
    world.configure(&[("maxBurst", "4"), ("rate", "3"), ("period", "1")]);
    let lane = world.lane("aaaaaaaa0");
    let of = Followed { rules: configured(0, 1, 1000), is_stored: true };
    let call = PolicyCall::alone(world.keys.clone(), of, Some(T0), lane, vec![request(5)]);
    let mark = mark(&world.on_server(&call).unwrap());
    for credit in [2, 0] {
        let refund = PolicyRefundCall {
            of: Followed { rules: configured(0, 1, 1000), is_stored: true },
            at: Some(T0),
            lane: world.lane("aaaaaaaa1"),
            mark,
            permits: 2,
        };
        assert_eq!(world.on_server(&refund).unwrap(), credit);
        world.configure(&[("maxBurst", "1"), ("rate", "1"), ("period", "60")]);
    }
}

#[test]
fn a_configuration_that_is_none_is_named() {
    let mut world = World::of_rgcra();
    for (burst, rate, period, named) in [
        ("-1", "3", "1", "maxBurst"),
        ("x", "3", "1", "maxBurst"),
        ("4", "0", "1", "rate"),
        ("4", "1.5", "1", "rate"),
        ("4", "3", "0", "period"),
        ("4", "3", "1e3", "period"),
        ("4", "3", "", "period"),
        ("4", "3", "0x10", "period"),
        ("4294967295", "3", "1", "c is"),
        ("4", "1", "99999999999", "c is"),
    ] {
        world.configure(&[("maxBurst", burst), ("rate", rate), ("period", period)]);
        let error = world.takes(T0, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CorruptState, "{burst} {rate} {period}");
        assert!(error.detail().is_some_and(|detail| detail.starts_with(named)), "{error:?}");
    }
}

#[test]
fn a_rate_is_set_as_redisson_sets_it() {
    let mut world = World::of_rgcra();
    world.configure(&[("maxBurst", "4"), ("rate", "3"), ("period", "1")]);
    assert_eq!(world.takes(T0, 5).unwrap(), Outcome::Granted);
    for (ms, text) in [(250, "0.25"), (60_000, "60")] {
        // What RGcra counts in itself.
        redis::cmd("SET").arg("api").arg("5").exec(&mut world.server.raw()).unwrap();
        let policy = configured(7, 2, ms);
        let rule = ChangeRule::Reset;
        let of = policy.into();
        world.on_server(&PolicyChangeCall { of, at: Some(T0), rule, keep_alive_ms: 0 }).unwrap();
        let key = &*world.keys.value;
        let config: Hash = redis::cmd("HGETALL").arg(key).query(&mut world.server.raw()).unwrap();
        let wanted = [("maxBurst", "7"), ("period", text), ("rate", "2")];
        let wanted = wanted.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(config, Hash::from(wanted));
        let is_there: bool =
            redis::cmd("EXISTS").arg("api").query(&mut world.server.raw()).unwrap();
        assert!(!is_there);
        assert_eq!(world.takes(T0, 8).unwrap(), Outcome::Granted);
    }
}

#[tokio::test]
async fn what_does_not_go_with_it_is_refused_before_anything_is_sent() {
    let client = Client::builder().connect_lazy("redis://127.0.0.1:1").unwrap();
    let refused = |error: Option<Error>, named: &str| {
        let error = error.expect("an error");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(named), "{error}");
    };
    let policy = configured(4, 3, 1000);
    refused(client.limiter_of("api", policy.clone()).err(), "stored_limiter_of");
    let in_process = Client::builder().in_process(&crate::InProcessStore::new()).unwrap();
    refused(in_process.stored_limiter_of("api", policy.clone()).err(), "on a server");
    let api = client.stored_limiter_of("api", policy.clone()).unwrap();
    let bucket = Policy::bucket(5, 3, Duration::from_secs(1)).unwrap();
    let other = client.limiter_of("{api}:other", bucket.clone()).unwrap();
    refused(client.all_of([&api, &other]).err(), "all_of_in_turn");
    refused(api.set_policy(policy.clone(), ChangeRule::Keep, None).await.err(), "Reset");
    let hour = Some(Duration::from_secs(3600));
    refused(api.set_policy(policy.clone(), ChangeRule::Reset, hour).await.err(), "keep-alive");
    refused(api.set_policy(bucket, ChangeRule::Reset, None).await.err(), "RGcra");
    refused(other.set_policy(policy, ChangeRule::Reset, None).await.err(), "RGcra");
    let second = Duration::from_secs(1);
    for (burst, rate, period) in [
        (u64::MAX, 1, second),
        (1, 0, second),
        (1, 1, Duration::ZERO),
        (1, 1, second * 400_000_000),
    ] {
        assert!(Policy::rgcra(burst, rate, period).is_err(), "{burst} {rate} {period:?}");
    }
}
