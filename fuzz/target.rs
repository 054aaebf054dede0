//! Fuzzes one target, the one that `FUZZ_TARGET` names.

#![no_main]

use std::sync::LazyLock;

use redisson_rate_limiter::fuzz::{TARGETS, Target};

static CHOSEN: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
    *TARGETS.iter().find(|(known, _)| *known == name).expect("a target of that name")
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (CHOSEN.1)(data));
