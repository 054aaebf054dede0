//! When a queue keeps to its client's share, and when it does not.

use super::super::share::Sharing;
use crate::store::Holders;

const SECOND: u64 = 1_000_000;

/// Whether a queue still keeps to its share after a look that found `entries`, of `others` clients and itself.
fn keeps_to_its_share(entries: u64, others: u64, later: u64) -> bool {
    let mut sharing = Sharing::default();
    sharing.replied(0, SECOND, (1, 0), true, None);
    assert!(sharing.terms(1, true).is_some(), "exhausted");
    let holders = Holders { others, redisson: false, share_left: 0, entries };
    sharing.replied(2, SECOND, (1, 0), true, Some(holders));
    sharing.replied(2 + later - 1, SECOND, (1, 0), true, None);
    sharing.terms(2 + later, true).is_some()
}

#[test]
fn a_fleet_whose_looks_would_fill_the_server_takes_what_is_free() {
    assert!(keeps_to_its_share(10_000, 9, SECOND));
    assert!(!keeps_to_its_share(50_000, 999, SECOND));
    assert!(!keeps_to_its_share(10_000, 99, SECOND));
    // It looks again, as the fleet may have become smaller.
    assert!(keeps_to_its_share(50_000, 999, 10 * SECOND));
}
