//! Keys with contents that no limiter writes. This crate reports what is wrong
//! and writes nothing; Redisson is only required to keep working.

use compat_tests::peer::{Answer, ErrorKind, Kind, Rate};
use compat_tests::scenario::{Case, each_pair, fresh_name};

const LONG: i64 = 600_000;

#[test]
fn a_key_of_another_type_is_reported() {
    each_pair(async |case| {
        for key in ["@h", "@v", "@l"] {
            case.other.set_rate(Rate::overall(10, LONG)).await.unwrap();
            assert!(case.other.try_acquire(1).await.unwrap());
            let () = case.redis(&format!("DEL {key}")).await;
            let () = case.redis(&format!("LPUSH {key} x")).await;
            let error = case.one.try_acquire(1).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::WrongType, "{key}: {}", error.message);
            if key == "@h" {
                assert_kind(case.one.config().await, case, ErrorKind::WrongType);
                assert_kind(
                    case.one.try_set_rate(Rate::overall(1, 1)).await,
                    case,
                    ErrorKind::WrongType,
                );
            }
            assert_eq!(case.redis::<i64>(&format!("LLEN {key}")).await, 1);
            let () = case.redis("DEL @h @v @l").await;
        }
    });
}

#[test]
fn an_unreadable_hash_is_reported() {
    each_pair(async |case| {
        if case.kinds().0 == Kind::Java {
            return; // Divergences 18 and 21.
        }
        for (damage, field) in [
            ("HSET @h rate many", "rate"),
            ("HSET @h rate 1.5", "rate"),
            ("HSET @h rate 0", "rate"),
            ("HSET @h interval -1", "interval"),
            ("HSET @h interval 1e3", "interval"),
            ("HSET @h type 2", "type"),
            ("HSET @h keepAliveTime soon", "keepAliveTime"),
        ] {
            case.other.set_rate(Rate::overall(10, LONG)).await.unwrap();
            let () = case.redis(damage).await;
            let before = case.dump().await.to_string();
            for answer in [
                case.one.try_acquire(1).await.map(drop),
                case.one.available().await.map(drop),
                case.one.config().await.map(drop),
                case.one.release(1).await,
            ] {
                let error = answer.expect_err(damage);
                assert_eq!(error.kind, ErrorKind::CorruptState, "{damage}");
                assert!(error.message.contains(field), "{damage}: {}", error.message);
            }
            assert_eq!(case.dump().await.to_string(), before, "{damage}");
        }
    });
}

#[test]
fn a_limiter_without_a_rate_or_an_interval_is_not_initialized() {
    each_pair(async |case| {
        for damage in ["HDEL @h rate", "HDEL @h interval", "HDEL @h rate interval"] {
            case.other.set_rate(Rate::overall(10, LONG)).await.unwrap();
            let () = case.redis(damage).await;
            let before = case.dump().await.to_string();
            let error = case.one.try_acquire(1).await.unwrap_err();
            let named = [ErrorKind::NotInitialized, ErrorKind::CorruptState];
            assert!(named.contains(&error.kind), "{damage}: {error:?}");
            assert_eq!(case.dump().await.to_string(), before, "{damage}");
        }
    });
}

#[test]
fn a_limiter_without_a_mode_is_not_initialized() {
    each_pair(async |case| {
        case.other.set_rate(Rate::overall(10, LONG)).await.unwrap();
        let () = case.redis("HDEL @h type").await;
        let error = case.one.try_acquire(1).await.unwrap_err();
        let named = [ErrorKind::NotInitialized, ErrorKind::CorruptState];
        assert!(named.contains(&error.kind), "{error:?}");
        // Setting the rate repairs it.
        assert!(case.one.try_set_rate(Rate::overall(5, LONG)).await.unwrap());
        assert!(case.other.try_acquire(10).await.unwrap(), "the rate stood");
    });
}

/// Entries of other releases, and bytes that are no entry: the member, and a
/// part of the release range that the error names.
const FOREIGN: [(&[u8], &str); 4] = [
    (&[16, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 0, 0, 0], "3.16"),
    (&[0x12, 0x34, 0x56, 0x78, 1, 0, 0, 0], "3.13"),
    (&[16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 1, 0, 0], ""),
    (b"x", ""),
];

#[test]
fn a_foreign_entry_is_reported_while_it_is_live_and_ignored_afterwards() {
    each_pair(async |case| {
        if case.kinds().0 == Kind::Java {
            return; // It guesses.
        }
        for (member, range) in FOREIGN {
            // A name that the client has not used yet, so that it inspects the whole log.
            let case = case.world.case(case.kinds(), &fresh_name()).await;
            case.other.set_rate(Rate::overall(10, 300)).await.unwrap();
            assert!(case.other.try_acquire(4).await.unwrap());
            case.age(4, 1_000).await;
            case.add_entry(-LONG, member).await;
            assert_foreign(&case, 1, range).await;

            let () = case.redis("DEL @l").await;
            case.add_entry(1_000, member).await;
            assert!(case.one.try_acquire_for(10, 3_000).await.unwrap());
            let budget = case.overall().await;
            assert_eq!((budget.left(), budget.logged()), (Some(0), 10));
        }
    });
}

#[test]
fn a_foreign_entry_is_reported_while_the_limiter_is_in_use() {
    each_pair(async |case| {
        if case.kinds().0 == Kind::Java {
            return; // It guesses.
        }
        for (member, range) in FOREIGN {
            case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
            assert!(case.one.try_acquire(4).await.unwrap());
            // As the oldest entry, whether or not there are enough permits.
            case.add_entry(1_000, member).await;
            assert_foreign(case, 7, range).await;
            assert_foreign(case, 1, range).await;
            // Behind another one, by the next refusal; a call that is granted looks at the oldest
            // alone, until the next audit.
            let () = case.redis("DEL @l").await;
            case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
            assert!(case.one.try_acquire(4).await.unwrap());
            case.add_entry(-1_000, member).await;
            assert_foreign(case, 7, range).await;
        }
    });
}

async fn assert_foreign(case: &Case<'_>, permits: i64, range: &str) {
    let before = case.dump().await.to_string();
    let error = case.one.try_acquire(permits).await.expect_err("a foreign entry");
    assert_eq!(error.kind, ErrorKind::ForeignEntry, "{}", error.message);
    assert!(error.message.contains(range), "{}", error.message);
    assert_eq!(case.dump().await.to_string(), before, "nothing is written");
}

#[test]
fn invalid_arguments_are_refused_before_anything_is_sent() {
    each_pair(async |case| {
        if case.kinds().0 == Kind::Java {
            return; // Divergence 11; rates are not checked at all.
        }
        let invalid = ErrorKind::InvalidArgument;
        for rate in [
            Rate::overall(0, LONG),
            Rate::overall(-1, LONG),
            Rate::overall((1 << 53) + 1, LONG),
            Rate::overall(10, 0),
            Rate::overall(10, -5),
            Rate::overall(10, LONG).keep_alive(-1),
        ] {
            assert_kind(case.one.try_set_rate(rate).await, case, invalid);
            assert_kind(case.one.set_rate(rate).await, case, invalid);
            assert_kind(case.one.update_rate(rate, true).await, case, invalid);
        }
        assert!(!case.other.exists().await.unwrap());
        case.other.set_rate(Rate::overall(1 << 53, LONG)).await.unwrap();
        for permits in [0, -1, 1 << 32] {
            assert_kind(case.one.try_acquire(permits).await, case, invalid);
            assert_kind(case.one.acquire(permits).await, case, invalid);
        }
        assert_eq!(case.redis::<i64>("EXISTS @v @l").await, 0);
        assert!(case.one.try_acquire((1 << 32) - 1).await.unwrap());
    });
}

/// The answer is an error of this kind; for Redisson, whose kinds differ, any error.
fn assert_kind<T: std::fmt::Debug>(answer: Answer<T>, case: &Case<'_>, kind: ErrorKind) {
    let error = answer.expect_err("an error");
    if case.is_rust() {
        assert_eq!(error.kind, kind, "{}", error.message);
    }
}
