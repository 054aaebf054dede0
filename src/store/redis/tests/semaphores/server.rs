//! What only a server shows: announcements, large numbers, time.

use super::*;

/// The messages that the calls publish.
fn published(world: &World, calls: impl FnOnce()) -> Vec<String> {
    let mut listener = world.server.raw();
    listener.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut channel = listener.as_pubsub();
    channel.subscribe(&*world.keys.permits).unwrap();
    calls();
    std::iter::from_fn(|| channel.get_message().ok()?.get_payload().ok()).collect()
}

#[test]
fn each_permit_that_became_free_is_announced() {
    let world = World::new();
    let call = acquire(Expirable, 1, vec![request(100)]);
    let messages = |calls: &dyn Fn()| published(&world, calls);
    let set = |rule, permits| {
        move |world: &World| {
            drop(world.on_server(&SetPermitsCall { kind: Expirable, rule, permits }))
        }
    };
    assert_eq!(messages(&|| set(SetPermits::Try, 2)(&world)), ["1", "1"]);
    assert!(messages(&|| set(SetPermits::Set, 1)(&world)).is_empty());
    let many = messages(&|| set(SetPermits::Add, 99)(&world));
    assert_eq!((many.len(), many[63].as_str()), (64, "36"));
    assert!(messages(&|| drop(world.on_server(&call))).is_empty());
    let back = |count| release(Expirable, (0..count).map(|n| call.id.permit(n)).collect(), 0);
    assert_eq!(messages(&|| drop(world.on_server(&back(3)))), ["1"; 3]);
    assert!(messages(&|| drop(world.on_server(&back(3)))).is_empty());
    // 97 leases have ended; a call for 96 permits leaves one of them and the three.
    let later =
        SemaphoreAcquireCall { at: Some(T0 + 30_000), ..acquire(Expirable, 2, vec![request(96)]) };
    assert_eq!(messages(&|| drop(world.on_server(&later))), ["1"]);
    assert_eq!(world.on_the_server().value.as_deref(), Some("4"));
    set(SetPermits::Set, 90)(&world);
    let back = release(Expirable, vec![later.id.permit(0)], 0);
    assert!(messages(&|| drop(world.on_server(&back))).is_empty(), "none is free");
}

/// Calls of a user who may not publish change the same, and nobody hears of it.
#[test]
fn who_may_not_publish_loses_no_permit() {
    let mut world = World::new();
    let rules = ["user", "on", ">word", "+@all", "~*", "resetchannels"];
    redis::cmd("ACL").arg("SETUSER").arg(&rules).exec(&mut world.server.raw()).unwrap();
    let url = format!("redis://user:word@127.0.0.1:{}", world.server.port);
    world.redis = store(&url, Duration::from_secs(20)).unwrap();
    let call = acquire(Expirable, 1, vec![request(2)]);
    let heard = published(&world, || {
        assert_eq!(world.set(Expirable, SetPermits::Try, 3), 1);
        assert_eq!(granted(&call, &world.run(&call).unwrap()), 2);
        let back = release(Expirable, vec![call.id.permit(0)], 0);
        let released = world.on_server(&back).unwrap();
        let in_process = world.memory.run(&world.keys, &back).unwrap();
        assert_eq!((&released.returned, released.listeners), (&in_process.returned, None));
        assert_eq!(released.returned, [Returned::InTime]);
    });
    assert_eq!((heard.len(), world.state().total()), (0, Some(3)));
}

#[test]
fn ten_thousand_permits_are_taken_renewed_and_given_back() {
    let world = World::new();
    world.set(Expirable, SetPermits::Try, 10_000);
    let call = acquire(Expirable, 1, vec![request(10_000)]);
    assert_eq!(granted(&call, &world.run(&call).unwrap()), 10_000);
    let repeat = SemaphoreAcquireCall { is_repeat: true, ..call.clone() };
    assert_eq!(granted(&repeat, &world.run(&repeat).unwrap()), 10_000);
    let ids: Vec<PermitId> = (0..10_000).map(|index| call.id.permit(index)).collect();
    let renew = RenewCall {
        at: Some(T0 + 1),
        lease_ms: Some(30_000),
        keep_alive_ms: None,
        may_shorten: false,
        permits: ids.clone(),
    };
    assert_eq!(world.run(&renew).unwrap(), [true; 10_000]);
    assert!(world.state().out.iter().all(|(end, _)| *end == T0 + 30_001));
    // All leases have ended: they are taken back 1000 at a time.
    let later =
        SemaphoreAcquireCall { at: Some(T0 + 90_000), ..acquire(Expirable, 2, vec![request(1)]) };
    let reply = world.run(&later).unwrap();
    assert_eq!((reply.left, reply.rate.permits()), (999, 10_000));
    let back = release(Expirable, ids, 0);
    let returned = world.run(&back).unwrap();
    assert_eq!(returned.returned.iter().filter(|one| **one == Returned::InTime).count(), 9000);
    assert_eq!(world.state().total(), Some(10_000));
}

/// Somebody else may have a permit for longer than this client keeps the semaphore alive.
#[test]
fn a_keep_alive_removes_nothing_under_a_longer_lease() {
    let world = World::new();
    world.set(Expirable, SetPermits::Try, 1);
    let theirs = leased(acquire(Expirable, 1, vec![request(1)]), Some(90_000));
    assert_eq!(granted(&theirs, &world.run(&theirs).unwrap()), 1);
    let ttl = |least: i64| {
        world.state();
        let snapshot = world.memory.snapshot();
        for key in [&world.keys.hash, &world.keys.value] {
            assert_eq!(snapshot[&**key].ttl_ms, (least > 0).then_some(least), "{key}");
        }
    };
    let renew = |lease_ms, keep_alive_ms| {
        let permits = vec![theirs.id.permit(0)];
        let call = RenewCall { at: Some(T0), lease_ms, keep_alive_ms, may_shorten: true, permits };
        assert_eq!(world.run(&call).unwrap(), [true]);
    };
    renew(Some(90_000), Some(0));
    ttl(0);
    let mut ours = leased(acquire(Expirable, 2, vec![request(1)]), Some(1000));
    ours.terms.keep_alive_ms = Some(1000);
    assert_eq!(granted(&ours, &world.run(&ours).unwrap()), 0);
    ttl(90_000);
    renew(Some(120_000), Some(0));
    ttl(120_000);
    renew(Some(60_000), Some(0));
    ttl(120_000);
    renew(Some(30_000), None);
    ttl(120_000);
    renew(Some(200_000), Some(1000));
    ttl(200_000);
    renew(None, Some(1000));
    ttl(NO_END - T0);
}

/// Somebody else keeps the semaphore alive for a while, and this client holds a permit for longer. One that it does not
/// renew ends as with Redisson.
#[test]
fn a_renewed_permit_is_not_removed_before_its_lease() {
    for (renews, least) in [(true, 30_000), (false, 5000)] {
        let world = World::new();
        world.set(Expirable, SetPermits::Try, 2);
        let mut theirs = leased(acquire(Expirable, 1, vec![request(1)]), Some(1000));
        theirs.terms.keep_alive_ms = Some(5000);
        world.run(&theirs).unwrap();
        let mut ours = acquire(Expirable, 2, vec![request(1)]);
        ours.terms.renews = renews;
        assert_eq!(granted(&ours, &world.run(&ours).unwrap()), 1);
        world.state();
        let snapshot = world.memory.snapshot();
        for key in [&world.keys.hash, &world.keys.value] {
            assert_eq!(snapshot[&**key].ttl_ms, Some(least), "{key}");
        }
    }
}

/// Redisson's permits have no lease unless one is named. Those who set the time to live meant it.
#[test]
fn a_permit_without_end_does_not_make_a_time_to_live_endless() {
    let world = World::new();
    world.set(Expirable, SetPermits::Try, 2);
    let theirs = leased(acquire(Expirable, 1, vec![request(1)]), None);
    assert_eq!(granted(&theirs, &world.run(&theirs).unwrap()), 1);
    let (when, hour) = (crate::store::Lifetime::In(3_600_000), 3_600_000);
    assert!(world.run(&crate::store::KeysCall::Expire(when, None)).unwrap());
    let mut ours = acquire(Expirable, 2, vec![request(1)]);
    ours.terms.renews = true;
    assert_eq!(granted(&ours, &world.run(&ours).unwrap()), 1);
    let permits = vec![ours.id.permit(0)];
    let (at, lease_ms) = (Some(T0), Some(60_000));
    let renew = RenewCall { at, lease_ms, keep_alive_ms: Some(0), may_shorten: false, permits };
    assert_eq!(world.run(&renew).unwrap(), [true]);
    world.state();
    let snapshot = world.memory.snapshot();
    for key in [&world.keys.hash, &world.keys.value] {
        assert!(snapshot[&**key].ttl_ms.is_some_and(|left| left <= hour), "{key}");
    }
}

/// A user without a right loses nothing, and gets nothing, however often a call is repeated.
#[test]
fn who_may_not_write_all_of_it_writes_nothing() {
    for without in ["-set", "-incrby"] {
        let mut world = World::new();
        world.set(Plain, SetPermits::Try, 3);
        let rules = ["user", "on", ">word", "+@all", "~*", "&*", without];
        redis::cmd("ACL").arg("SETUSER").arg(&rules).exec(&mut world.server.raw()).unwrap();
        let url = format!("redis://user:word@127.0.0.1:{}", world.server.port);
        world.redis = store(&url, Duration::from_secs(20)).unwrap();
        let numbered = |mut call: SemaphoreAcquireCall, number| {
            call.lane = Some(lane("aaaaaaaa0", number));
            call
        };
        let take = numbered(acquire(Plain, 1, vec![request(2)]), 1);
        let mut back = release(Plain, vec![], 1);
        back.lane = Some(lane("aaaaaaaa0", 2));
        let mut taken = 0;
        for _ in 0..3 {
            taken = world.on_server(&take).map_or(0, |reply| granted(&take, &reply));
            _ = world.on_server(&back);
        }
        let left: u64 = world.on_the_server().value.unwrap().parse().unwrap();
        assert!(left + taken <= 4 && left <= 3, "{without}: {left} left, {taken} taken");
    }
}

/// Redisson's `addPermits` ends that of the value.
#[test]
fn a_renewal_ends_a_time_to_live_of_the_permits_alone() {
    for (keep_alive_ms, left) in [(Some(0), None), (None, Some(5000))] {
        let world = World::new();
        world.set(Expirable, SetPermits::Try, 2);
        let call = acquire(Expirable, 1, vec![request(1)]);
        world.run(&call).unwrap();
        let out = &*world.keys.value;
        redis::cmd("PEXPIRE").arg(out).arg(5000).exec(&mut world.server.raw()).unwrap();
        let mut key = world.memory.snapshot()[out].clone();
        key.ttl_ms = Some(5000);
        world.memory.raw_put(out, Some(key));
        let permits = vec![call.id.permit(0)];
        let (at, lease_ms, may_shorten) = (Some(T0), Some(30_000), false);
        let renew = RenewCall { at, lease_ms, may_shorten, keep_alive_ms, permits };
        assert_eq!(world.run(&renew).unwrap(), [true]);
        world.state();
        assert_eq!(world.memory.snapshot()[out].ttl_ms, left);
    }
}

/// A server takes no time to live that ends after the last one that it can count.
#[tokio::test]
async fn permits_are_renewed_whatever_the_keep_alive() {
    let server = Server::start(&[]).expect("a server");
    let client = crate::Client::connect(&*server.url()).await.unwrap();
    let options = crate::SemaphoreOptions::new().permits(1).lease(Duration::from_millis(1500));
    let options = options.keep_alive(Duration::from_secs(u64::MAX));
    let permit = client.concurrency_with("s", options).unwrap().acquire(1).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!permit.is_lost());
    client.close().await;
}

/// They wrote ids as text.
#[test]
fn permits_of_redisson_before_3_17_come_back() {
    let world = World::new();
    world.set(Expirable, SetPermits::Try, 0);
    let ids = [1, 2].map(|call| CallId([call; 12]).permit(0xab));
    for (id, end) in ids.iter().zip([T0 + 30_000, T0]) {
        let text = id.to_string();
        let mut add = redis::cmd("ZADD");
        add.arg(&*world.keys.value).arg(end).arg(text).exec(&mut world.server.raw()).unwrap();
    }
    let back = release(Expirable, ids.to_vec(), 0);
    assert_eq!(world.on_server(&back).unwrap().returned, [Returned::InTime, Returned::Late]);
    assert_eq!(world.on_the_server().value.as_deref(), Some("2"));
    assert_eq!(world.on_server(&back).unwrap().returned, [Returned::Gone; 2]);
}

#[test]
fn a_plain_call_is_refused_where_permits_have_leases() {
    let world = World::new();
    let none = world.run(&acquire(Expirable, 1, vec![request(1)])).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotInitialized);
    world.set(Expirable, SetPermits::Try, 2);
    world.run(&acquire(Expirable, 1, vec![request(1)])).unwrap();
    let wrong = world.run(&acquire(Plain, 2, vec![request(1)])).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::InvalidArgument);
    assert!(world.run(&release(Plain, vec![], 1)).is_err());
    // What is certainly given back was taken as plain permits.
    let mut back = release(Plain, vec![], 1);
    back.lane = Some(lane("aaaaaaaa0", 1));
    assert_eq!(world.run(&back).unwrap().returned, [Returned::InTime]);
    let mut unused = acquire(Plain, 2, Vec::new());
    unused.lane = Some(LaneCall { abandon: Some(1), ..lane("aaaaaaaa0", 2) });
    world.run(&unused).unwrap();
    assert_eq!(world.state().value.as_deref(), Some("2"));
}

/// The steps of Redisson for a lone permit, in a script of our own.
const THEIR_ACQUIRE: &str = "
local ended = redis.call('zrangebyscore', KEYS[2], 0, ARGV[2], 'limit', 0, ARGV[1])
if #ended > 0 then
  redis.call('zrem', KEYS[2], unpack(ended))
  local value = redis.call('incrby', KEYS[1], #ended)
  if tonumber(value) > 0 then redis.call('publish', KEYS[3], value) end
end
local value = redis.call('get', KEYS[1])
if value and tonumber(value) >= tonumber(ARGV[1]) then
  redis.call('decrby', KEYS[1], ARGV[1])
  redis.call('zadd', KEYS[2], ARGV[3], ARGV[4])
  local ttl = redis.call('pttl', KEYS[1])
  if ttl > 0 then redis.call('pexpire', KEYS[2], ttl) end
  return ARGV[4]
end
return nil";
const THEIR_RELEASE: &str = "
local lease = redis.call('zscore', KEYS[2], ARGV[1])
if not lease then return 0 end
redis.call('zrem', KEYS[2], ARGV[1])
local value = redis.call('incrby', KEYS[1], 1)
redis.call('publish', KEYS[3], value)
return tonumber(lease) <= tonumber(ARGV[2]) and 0 or 1";

/// Prints the server's time for a lone acquire and release, here and with the steps of Redisson.
#[test]
#[ignore = "measures"]
fn server_time() {
    const CALLS: u64 = 20_000;
    let world = World::new();
    let mut raw = world.server.raw();
    let keys = [&*world.keys.hash, &*world.keys.value, &*world.keys.permits];
    let cost = |name: &str, call: &mut dyn FnMut(u64)| {
        let mut raw = world.server.raw();
        world.set(if name == "plain" { Plain } else { Expirable }, SetPermits::Set, 10);
        call(1);
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut raw).unwrap();
        (2..CALLS).for_each(&mut *call);
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut raw).unwrap();
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
        let us = line.split("usec_per_call=").nth(1).unwrap().split(',').next().unwrap();
        println!("{name}: {us} us for each of an acquire and a release");
    };
    let [take, give] = [THEIR_ACQUIRE, THEIR_RELEASE].map(redis::Script::new);
    cost("Redisson's steps", &mut |number| {
        let id = format!("{number:016}");
        let mut take = take.prepare_invoke();
        keys.iter().for_each(|key| {
            take.key(*key);
        });
        take.arg(1).arg(T0).arg(T0 + 30_000).arg(&id).invoke::<String>(&mut raw).unwrap();
        let mut give = give.prepare_invoke();
        keys.iter().for_each(|key| {
            give.key(*key);
        });
        assert_eq!(give.arg(&id).arg(T0).invoke::<u8>(&mut raw).unwrap(), 1);
    });
    cost("expirable", &mut |number| {
        let call =
            SemaphoreAcquireCall { at: None, ..acquire(Expirable, number, vec![request(1)]) };
        assert_eq!(granted(&call, &world.on_server(&call).unwrap()), 1);
        let back = release(Expirable, vec![call.id.permit(0)], 0);
        world.on_server(&SemaphoreReleaseCall { at: None, ..back }).unwrap();
    });
    cost("plain", &mut |number| {
        let call = SemaphoreAcquireCall { at: None, ..acquire(Plain, number, vec![request(1)]) };
        assert_eq!(granted(&call, &world.on_server(&call).unwrap()), 1);
        let lane = Some(lane("aaaaaaaa1", number));
        let back = SemaphoreReleaseCall { at: None, lane, ..release(Plain, vec![], 1) };
        world.on_server(&back).unwrap();
    });
}
