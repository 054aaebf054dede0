//! Programs: what may be asked of a store, and with which numbers.

use proptest::prelude::*;

use super::damage::{Damage, damage, score};
use crate::options::Fraction;
use crate::rate::{Mode, Rate};
use crate::store::{ExpireCondition, Lifetime, RequestGroup, ShareTerms, StateRule};

#[derive(Clone, Debug)]
pub(super) enum Op {
    /// The time moves on, or back.
    Advance(i64),
    Acquire {
        who: Who,
        groups: Vec<RequestGroup>,
        seen: Seen,
        audit_limit: u64,
        create: Option<Rate>,
        hold: u64,
        /// The client in the id, with its weight; `None`: an id as Redisson's.
        tag: Option<(u8, u8)>,
        share: Option<ShareTerms>,
        reserve: bool,
        headroom: Option<Fraction>,
        /// The log has an entry of its id already, with this score and these permits.
        same_id: Option<(i64, u32)>,
    },
    /// An acquire for a key.
    Once {
        who: Who,
        key: u8,
        permits: u64,
        seen: Seen,
        create: Option<Rate>,
        headroom: Option<Fraction>,
    },
    /// Another attempt of this client's last acquire, whose answer was lost.
    Retry {
        who: Who,
        since: bool,
        seen: Seen,
        /// The first attempt arrives only after this one.
        late: bool,
    },
    /// The first attempt of this client's last acquire arrives, late.
    LateFirst {
        who: Who,
        since: bool,
    },
    /// From both limiters, or from none.
    AcquireAll {
        client: usize,
        groups: Vec<RequestGroup>,
        /// Makes the permits asked of the second limiter out of those asked of the first.
        factor: u64,
        seen: [Seen; 2],
        audit_limit: u64,
        create: Option<Rate>,
        tag: (u8, u8),
        attempt: Attempt,
    },
    Refund {
        who: Who,
        grant: usize,
        share: u64,
    },
    Release {
        who: Who,
        permits: u64,
        seen: Seen,
    },
    /// Permits that were granted without the store, some time ago; or the last such once more.
    Charge {
        who: Who,
        permits: u64,
        age: i64,
        seen: Seen,
        again: bool,
    },
    Pause {
        who: Who,
        ms: u64,
        seen: Seen,
    },
    Peek {
        who: Who,
        permits: u64,
        seen: Seen,
    },
    TrySetRate {
        who: Who,
        rate: Rate,
    },
    SetRate {
        who: Who,
        rate: Rate,
        only_existing: bool,
        /// What the call names as the only rate that it replaces: the one in force, or this one.
        from: Option<Option<Rate>>,
        state: StateRule,
    },
    Config(Who),
    /// Sets the rate in force again, as `reset_usage` does.
    DropUsage(Who),
    Expire {
        who: Who,
        lifetime: Lifetime,
        condition: Option<ExpireCondition>,
    },
    ClearExpire(Who),
    TimeToLive(Who),
    Exists(Who),
    Delete(Who),
    Rename(Who),
    Touch(Who),
    Inspect {
        who: Who,
        most_entries: u64,
    },
    Repair {
        who: Who,
        only_look: bool,
    },
    RemoveUnused {
        who: Who,
        age_ms: u64,
    },
    /// After the hash is gone.
    RemoveOrphaned {
        who: Who,
        age_ms: u64,
    },
    /// While a limiter exists that has the same value and log.
    RemoveShared {
        who: Who,
        age_ms: u64,
    },
    /// To the name that has the same value and log, and back.
    RenameByBraces(Who),
    Damage {
        who: Who,
        damage: Damage,
    },
}

/// Which attempt of a client's acquire from both limiters it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Attempt {
    First,
    /// Another one of its last acquire, by the client's clock or by the server's.
    Again(bool),
    /// The first one of its last acquire arrives, late.
    LateFirst(bool),
}

/// A limiter and a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who(pub(super) usize, pub(super) usize);

#[derive(Clone, Copy, Debug)]
pub(super) enum Seen {
    Known,
    /// What the client knows, but in the other mode.
    OtherMode,
    None,
    Other(Rate),
}

fn who() -> impl Strategy<Value = Who> {
    (
        prop_oneof![9 => Just(0usize), 1 => Just(1usize)],
        prop_oneof![3 => Just(0usize), 1 => Just(1)],
    )
        .prop_map(|(limiter, client)| Who(limiter, client))
}

pub(super) fn rate() -> impl Strategy<Value = Rate> {
    // Numbers in Lua are exact up to 2^53, and a damaged state may have more permits than the rate.
    const GREATEST: u64 = (1 << 53) - (1 << 20);
    let permits =
        prop_oneof![8 => 1u64..30, 2 => Just(100u64), 1 => Just(1u64 << 40), 1 => Just(GREATEST)];
    let keep_alive = prop_oneof![4 => Just(0u64), 1 => Just(200_000), 1 => Just(2_000_000)];
    (
        prop_oneof![3 => Just(Mode::Overall), 1 => Just(Mode::PerClient)],
        permits,
        prop_oneof![4 => Just(1000u64), 1 => Just(1), 1 => Just(60_000)],
        keep_alive,
    )
        .prop_map(|(mode, permits, interval, keep)| Rate::from_wire(mode, permits, interval, keep))
}

fn seen() -> impl Strategy<Value = Seen> {
    prop_oneof![9 => Just(Seen::Known), 1 => Just(Seen::OtherMode), 2 => Just(Seen::None), 1 => rate().prop_map(Seen::Other)]
}

fn tag() -> impl Strategy<Value = Option<(u8, u8)>> {
    prop::option::weighted(0.7, (0u8..3, prop_oneof![3 => Just(1u8), 1 => 2u8..=255]))
}

fn share() -> impl Strategy<Value = Option<ShareTerms>> {
    let unclaimed = prop_oneof![Just(0u64), 1u64..20, Just(u64::MAX)];
    let others = prop_oneof![4 => Just(0u64), 3 => 1u64..9, 1 => Just(u64::MAX)];
    let terms = (others, unclaimed, 0u64..130, any::<bool>());
    let terms = terms.prop_map(|(others, unclaimed, retry_after_ms, may_exceed)| ShareTerms {
        others,
        unclaimed,
        retry_after_ms,
        may_exceed,
    });
    prop::option::weighted(0.5, terms)
}

fn headroom() -> impl Strategy<Value = Option<Fraction>> {
    let part =
        (1u32..10).prop_flat_map(|of| (1..=of).prop_map(move |parts| Fraction::new(parts, of)));
    prop::option::weighted(0.3, part)
}

fn same_id() -> impl Strategy<Value = Option<(i64, u32)>> {
    prop::option::weighted(0.1, (score(), 1u32..8))
}

fn audit_limit() -> impl Strategy<Value = u64> {
    prop_oneof![18 => Just(0u64), 1 => 1u64..200, 1 => Just(u64::MAX)]
}

fn groups() -> impl Strategy<Value = Vec<RequestGroup>> {
    let max_wait_ms = prop_oneof![4 => Just(0u64), 2 => 1u64..3000, 1 => Just(u64::MAX)];
    let permits = prop_oneof![4 => Just(1u64), 4 => 1u64..12, 1 => 20u64..200, 1 => Just(u64::from(u32::MAX))];
    let count = prop_oneof![6 => Just(1u64), 3 => 1u64..8, 1 => 10u64..200];
    let group = (permits, max_wait_ms, count)
        .prop_map(|(permits, max_wait_ms, count)| RequestGroup { permits, max_wait_ms, count });
    prop_oneof![4 => prop::collection::vec(group.clone(), 1), 2 => prop::collection::vec(group, 1..8)]
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let pass = prop_oneof![6 => 0i64..400, 3 => 400i64..2500, 1 => -500i64..0, 1 => Just(1000i64)];
    let hold = prop_oneof![9 => Just(0u64), 1 => 1u64..2000];
    let create = prop::option::weighted(0.2, rate());
    let acquire = (
        who(),
        groups(),
        seen(),
        audit_limit(),
        create,
        hold.clone(),
        tag(),
        share(),
        (prop::bool::weighted(0.3), headroom(), same_id()),
    )
        .prop_map(|(who, groups, seen, audit_limit, create, hold, tag, share, last)| {
            let (reserve, headroom, same_id) = last;
            Op::Acquire {
                who,
                groups,
                seen,
                audit_limit,
                create,
                hold,
                tag,
                share,
                reserve,
                headroom,
                same_id,
            }
        });
    // Calls that the short path of the script grants, if they fit.
    let few = prop_oneof![4 => Just((1, 1)), 1 => Just((3, 1)), 1 => (1u64..3, 1u64..8)];
    let simple = (who(), few, hold, tag(), headroom(), same_id()).prop_map(
        |(who, (permits, count), hold, tag, headroom, same_id)| Op::Acquire {
            who,
            groups: vec![RequestGroup { permits, max_wait_ms: 0, count }],
            seen: Seen::Known,
            audit_limit: 0,
            create: None,
            hold,
            tag,
            share: None,
            reserve: false,
            headroom,
            same_id,
        },
    );
    // What is reserved, and granted or reserved again when the call is repeated.
    let large = (who(), 2u64..20, 1u64..3000, tag(), share(), headroom()).prop_map(
        |(who, permits, max_wait_ms, tag, share, headroom)| Op::Acquire {
            who,
            groups: vec![RequestGroup { permits, max_wait_ms, count: 1 }],
            seen: Seen::Known,
            audit_limit: 0,
            create: None,
            hold: 0,
            tag,
            share,
            reserve: true,
            headroom,
            same_id: None,
        },
    );
    let attempt = prop_oneof![
        5 => Just(Attempt::First),
        2 => any::<bool>().prop_map(Attempt::Again),
        1 => any::<bool>().prop_map(Attempt::LateFirst),
    ];
    let create = prop::option::weighted(0.2, rate());
    let all = (0usize..2, groups(), 0u64..5, [seen(), seen()], audit_limit(), create, attempt)
        .prop_map(|(client, groups, factor, seen, audit_limit, create, attempt)| {
            let tag = (client as u8, 1);
            Op::AcquireAll { client, groups, factor, seen, audit_limit, create, tag, attempt }
        });
    let lifetime = prop_oneof![
        // The stores are called a moment apart. Two equal lifetimes, one after the other, would show it.
        3 => (100_000..315_360_000_000u64).prop_map(Lifetime::In),
        1 => Just(Lifetime::In(0)),
        1 => Just(Lifetime::At(1000)),
        1 => Just(Lifetime::At(4_000_000_000_000)),
    ];
    let condition = prop::option::of(prop::sample::select(vec![
        ExpireCondition::IfNotSet,
        ExpireCondition::IfSet,
        ExpireCondition::IfGreater,
        ExpireCondition::IfLess,
    ]));
    let state =
        prop::sample::select(vec![StateRule::DropNewMode, StateRule::Drop, StateRule::Keep]);
    prop_oneof![
        20 => pass.prop_map(Op::Advance),
        30 => acquire,
        12 => large,
        25 => all,
        30 => simple,
        8 => (who(), 0u8..4, 1u64..12, seen(), prop::option::weighted(0.2, rate()), headroom())
            .prop_map(|(who, key, permits, seen, create, headroom)| Op::Once {
                who, key, permits, seen, create, headroom,
            }),
        12 => (who(), any::<bool>(), seen(), prop::bool::weighted(0.4))
            .prop_map(|(who, since, seen, late)| Op::Retry { who, since, seen, late }),
        3 => (who(), any::<bool>()).prop_map(|(who, since)| Op::LateFirst { who, since }),
        8 => (who(), any::<usize>(), 0u64..120)
            .prop_map(|(who, grant, share)| Op::Refund { who, grant, share }),
        5 => (who(), 1u64..20, seen()).prop_map(|(who, permits, seen)| Op::Release { who, permits, seen }),
        5 => (who(), prop_oneof![9 => 1u64..20, 1 => Just(u64::from(u32::MAX))], 0i64..1200, seen(), any::<bool>())
            .prop_map(|(who, permits, age, seen, again)| Op::Charge { who, permits, age, seen, again }),
        5 => (who(), prop_oneof![1 => Just(0u64), 2 => 1u64..3000, 1 => Just(31_536_000_000u64)], seen())
            .prop_map(|(who, ms, seen)| Op::Pause { who, ms, seen }),
        6 => (who(), 0u64..40, seen()).prop_map(|(who, permits, seen)| Op::Peek { who, permits, seen }),
        6 => (who(), rate()).prop_map(|(who, rate)| Op::TrySetRate { who, rate }),
        5 => (who(), rate(), any::<bool>(), prop::option::of(prop::option::of(rate())), state).prop_map(
            |(who, rate, only_existing, from, state)| Op::SetRate { who, rate, only_existing, from, state },
        ),
        1 => who().prop_map(Op::Config),
        2 => who().prop_map(Op::DropUsage),
        1 => who().prop_map(Op::RenameByBraces),
        1 => (who(), 0u64..2500).prop_map(|(who, age_ms)| Op::RemoveShared { who, age_ms }),
        2 => (who(), lifetime, condition)
            .prop_map(|(who, lifetime, condition)| Op::Expire { who, lifetime, condition }),
        1 => who().prop_map(Op::ClearExpire),
        1 => who().prop_map(Op::TimeToLive),
        1 => who().prop_map(Op::Exists),
        1 => who().prop_map(Op::Delete),
        1 => who().prop_map(Op::Rename),
        1 => who().prop_map(Op::Touch),
        6 => (who(), prop_oneof![1 => 0u64..5, 1 => Just(10_000u64)])
            .prop_map(|(who, most_entries)| Op::Inspect { who, most_entries }),
        6 => (who(), prop::bool::weighted(0.2))
            .prop_map(|(who, only_look)| Op::Repair { who, only_look }),
        3 => (who(), 0u64..2500).prop_map(|(who, age_ms)| Op::RemoveUnused { who, age_ms }),
        2 => (who(), 0u64..2500).prop_map(|(who, age_ms)| Op::RemoveOrphaned { who, age_ms }),
        12 => (who(), damage()).prop_map(|(who, damage)| Op::Damage { who, damage }),
    ]
}
