//! Slots that are being moved: whatever place its keys are in, a limiter is used exactly as if they
//! were at rest, or says that it cannot be used at present.

use compat_tests::cluster::{Cluster, Node};
use compat_tests::keys::Keys;
use redisson_rate_limiter::{Client, ErrorKind, Execution, Mode, Rate, RateLimiter, Usage};

use super::{SECOND, limiter, on_cluster, rate, slot_of};

/// A limiter whose slot is being moved from one node to another.
struct Moving<'c> {
    cluster: &'c Cluster,
    limiter: RateLimiter,
    keys: Keys,
    from: &'c Node,
    to: &'c Node,
}

impl<'c> Moving<'c> {
    async fn begin(cluster: &'c Cluster, limiter: RateLimiter) -> Self {
        let slot = slot_of(&limiter);
        let from = cluster.owner(slot).await;
        let to = cluster.another_master(from).await;
        cluster.open_slot(slot, from, to).await;
        Moving { cluster, keys: Keys::new(limiter.name()), limiter, from, to }
    }

    async fn move_keys(&self, keys: &[&str]) {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        self.cluster.move_keys(self.from, self.to, &keys).await;
    }

    async fn move_rest(&self) {
        self.cluster.move_all_keys(slot_of(&self.limiter), self.from, self.to).await;
    }

    async fn finish(self) {
        self.move_rest().await;
        self.cluster.close_slot(slot_of(&self.limiter), self.to).await;
    }

    async fn granted(&self, permits: u64) {
        let decision = self.limiter.try_acquire_now(permits).await.unwrap();
        assert!(decision.is_granted(), "{decision:?}");
    }

    async fn left(&self, node: &Node) -> Option<i64> {
        let mut get = redis::cmd("GET");
        let mut asking = redis::pipe();
        asking.cmd("ASKING").ignore().add_command(get.arg(self.keys.value(None)).clone());
        let answer: redis::RedisResult<(Option<i64>,)> =
            asking.query_async(&mut node.server.connect().await).await;
        answer.ok().and_then(|(left,)| left)
    }
}

#[test]
fn keys_that_have_not_moved_yet_are_used_where_they_are() {
    on_cluster(async |cluster| {
        let limiter = limiter(cluster, 10).await;
        assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
        let moving = Moving::begin(cluster, limiter).await;
        moving.granted(2).await;
        // An audit by a client that does not know the rate, and one that reads.
        let other = Client::connect(&cluster.url()).await.unwrap();
        let other = other.limiter(moving.limiter.name()).unwrap();
        assert!(other.try_acquire_now(3).await.unwrap().is_granted());
        assert_eq!(other.available_permits().await.unwrap(), 4);
        assert_eq!(moving.left(moving.from).await, Some(4));
        assert_eq!(moving.left(moving.to).await, None);
        assert!(!moving.limiter.try_acquire_now(5).await.unwrap().is_granted());
        assert_eq!(other.config().await.unwrap(), Some(rate(10)));
        moving.finish().await;
    });
}

#[test]
fn keys_that_have_all_moved_are_used_there() {
    on_cluster(async |cluster| {
        let limiter = limiter(cluster, 10).await;
        let mut grant = limiter.try_acquire_now(4).await.unwrap().into_grant().unwrap();
        let moving = Moving::begin(cluster, limiter).await;
        moving.move_rest().await;
        moving.granted(2).await;
        assert_eq!(moving.left(moving.to).await, Some(4));
        assert_eq!(grant.refund_all().await.unwrap(), 4);
        moving.limiter.release(1).await.unwrap();
        assert_eq!(moving.limiter.available_permits().await.unwrap(), 9);
        moving.limiter.update_rate(rate(20), Usage::Keep).await.unwrap();
        assert_eq!(moving.limiter.available_permits().await.unwrap(), 19);
        for _ in 0..2 {
            // The second time there is neither value nor log.
            moving.limiter.set_rate(rate(5)).await.unwrap();
        }
        let per_client = Rate::per_client(5, SECOND * 600).unwrap();
        assert!(moving.limiter.update_rate(per_client, Usage::Reset).await.unwrap());
        assert!(moving.limiter.update_rate(rate(5), Usage::Reset).await.unwrap());
        moving.granted(5).await;
        assert!(moving.limiter.expire(SECOND * 900, None).await.unwrap());
        assert!(moving.limiter.clear_expire().await.unwrap());
        assert!(moving.limiter.exists().await.unwrap());
        moving.finish().await;
    });
}

#[test]
fn a_new_limiter_begins_at_the_node_that_receives_its_slot() {
    on_cluster(async |cluster| {
        let name = limiter(cluster, 10).await;
        assert!(name.delete().await.unwrap());
        let moving = Moving::begin(cluster, name.with_rate(rate(7))).await;
        moving.granted(3).await;
        assert_eq!(moving.left(moving.to).await, Some(4));
        moving.finish().await;
    });
}

/// Taken for missing, the keys on the other node would let twice the rate through.
#[test]
fn keys_on_both_nodes_are_waited_for() {
    on_cluster(async |cluster| {
        let limiter = limiter(cluster, 10).await;
        assert!(limiter.try_acquire_now(10).await.unwrap().is_granted());
        let moving = Moving::begin(cluster, limiter).await;
        let (value, log) = (moving.keys.value(None), moving.keys.log(None));
        for key in [moving.keys.hash(), &log, &value] {
            let hasty = moving.limiter.clone().with_deadline(SECOND).unwrap();
            moving.move_keys(&[key]).await;
            let answer = hasty.try_acquire_now(1).await;
            if key == value {
                assert!(!answer.unwrap().is_granted(), "all keys are there");
                continue;
            }
            let error = answer.unwrap_err();
            // The last attempt may have been under way at the deadline.
            if error.kind() != ErrorKind::Timeout {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert_eq!(error.execution(), Execution::NotExecuted, "{error}");
                assert!(error.to_string().contains("is being moved"), "{error}");
            }
        }
        moving.finish().await;
    });
}

/// A caller that does not wait for permits waits while keys are on their way.
#[test]
fn a_call_goes_on_once_the_keys_have_arrived() {
    on_cluster(async |cluster| {
        let moving = Moving::begin(cluster, limiter(cluster, 10).await).await;
        // Only the hash is there: the owner may not add the value, and the receiver has not the hash.
        let (decision, ()) = tokio::join!(moving.limiter.try_acquire_now(4), async {
            tokio::time::sleep(SECOND / 5).await;
            moving.move_rest().await;
        });
        assert!(decision.unwrap().is_granted());
        assert_eq!(moving.left(moving.to).await, Some(6));
        moving.finish().await;
    });
}

/// The drop would empty the log at a node that may not write it again.
#[test]
fn a_log_that_has_expired_is_not_lost_in_an_open_slot() {
    on_cluster(async |cluster| {
        let limiter = limiter(cluster, 10).await;
        let short = Rate::overall(10, SECOND / 5).unwrap();
        limiter.set_rate(short).await.unwrap();
        assert!(limiter.try_acquire_now(10).await.unwrap().is_granted());
        let moving = Moving::begin(cluster, limiter).await;
        tokio::time::sleep(SECOND / 4).await;
        let hasty = moving.limiter.clone().with_deadline(SECOND).unwrap();
        let error = hasty.try_acquire_now(1).await.unwrap_err();
        let is_cut_off = error.kind() == ErrorKind::Timeout;
        assert!(error.execution() == Execution::NotExecuted || is_cut_off, "{error}");
        assert_eq!(moving.left(moving.from).await, Some(0), "nothing was written");
        moving.move_rest().await;
        moving.granted(10).await;
        moving.finish().await;
    });
}

#[test]
fn a_per_client_limiter_is_used_in_an_open_slot() {
    on_cluster(async |cluster| {
        let limiter = limiter(cluster, 10).await;
        let per_client = Rate::per_client(10, SECOND * 600).unwrap();
        assert_eq!(per_client.mode(), Mode::PerClient);
        limiter.set_rate(per_client).await.unwrap();
        assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
        let moving = Moving::begin(cluster, limiter).await;
        moving.granted(2).await;
        moving.move_rest().await;
        moving.granted(3).await;
        assert_eq!(moving.limiter.available_permits().await.unwrap(), 4);
        moving.finish().await;
    });
}
