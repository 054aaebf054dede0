//! The scripts of policies, put together from the files in `lua/policy` and `lua/foreign`.
//!
//! A policy's file has its names first, and then parts with a headline each, `--- roll`. A script says where a part
//! goes: `--> roll`. Some parts stand in a script twice: a usual grant passes through them before any function is
//! made, which would take as long as all the rest; for other calls they are the bodies of functions.

use std::sync::LazyLock;

use crate::policy::Kind;
use crate::policy::foreign::Format;
use crate::store::redis::{OpenSlot, Script};

macro_rules! lua {
    ($file:literal) => {
        include_str!(concat!("../../../lua/", $file, ".lua"))
    };
}

const CLOCK: &str = lua!("policy/clock");
const HEAD: &str = lua!("policy/head");
const PACE: &str = lua!("policy/pace");
const STORED: &str = lua!("policy/stored");
const LANE: &str = lua!("policy/lane");
const RULES: &str = lua!("policy/rules");
const CHANGE: &str = lua!("policy/change");
const WRITE: &str = lua!("policy/write");
const DECIDE: &str = lua!("policy/decide");
const FOREIGN: &str = lua!("foreign/common");

/// A script with the parts of this file in their places.
fn filled(script: &str, file: &str) -> String {
    let mut parts = file.split("--- ");
    let names = parts.next().unwrap_or_default();
    let mut filled = script.replace("--> names\n", names);
    for (name, text) in parts.filter_map(|part| part.split_once('\n')) {
        filled = filled.replace(&format!("--> {name}\n"), text);
    }
    filled
}

/// The script of one limiter.
fn alone(before: &[&str], file: &str) -> Script {
    composed(OpenSlot::AtReceiver, before, STORED, file)
}

/// The script of a format, which has no parameters of its own. Of several keys some are usually missing, so in a
/// cluster calls wait while the slot is being moved.
fn foreign(before: &[&str], file: &str) -> Script {
    composed(OpenSlot::Waits, before, "", &[file, "--- record\n", lua!("foreign/record")].concat())
}

fn composed(open_slot: OpenSlot, before: &[&str], stored: &str, file: &str) -> Script {
    let (usual, one) = (lua!("policy/usual"), lua!("policy/one"));
    let after = ["--> names\n", stored, LANE, usual, RULES, CHANGE, WRITE, one, DECIDE].concat();
    Script::new(filled(&[CLOCK, &before.concat(), &after].concat(), file).leak(), open_slot)
}

/// The script of several limiters: a function opens each of them by the rules of its policy.
fn together() -> Script {
    let kinds = [
        ("b", PACE, lua!("policy/bucket")),
        ("q", PACE, lua!("policy/queue")),
        ("s", "", lua!("policy/sliding")),
        ("r", "", lua!("policy/rolling")),
        ("i", "", lua!("policy/interval")),
        ("[fad]", "", lua!("policy/window")),
    ];
    let rules = kinds.map(|(letters, pace, file)| {
        let rules = filled(&[pace, "--> names\n", RULES].concat(), file);
        format!("if string.find(wanted, '^{letters}') then\n{rules}end\n")
    });
    let calls = "--- parameters\nconfigure(text)\n--- roll\nroll()\n";
    let read = filled(&[STORED, LANE].concat(), calls);
    let open = [HEAD, &rules.concat(), &read, CHANGE, WRITE].concat();
    let open = format!("local function open(KEYS, ARGV)\n{open}return it\nend\n");
    let source = [CLOCK, &open, lua!("policy/group"), DECIDE].concat();
    Script::new(source.leak(), OpenSlot::Waits)
}

macro_rules! scripts {
    ($($name:ident = $script:expr;)+) => {
        $(static $name: LazyLock<Script> = LazyLock::new(|| $script);)+
    };
}

scripts! {
    BUCKET = alone(&[HEAD, PACE], lua!("policy/bucket"));
    RGCRA = alone(&[lua!("policy/rgcra"), HEAD, PACE], lua!("policy/bucket"));
    WINDOW = alone(&[HEAD], lua!("policy/window"));
    SLIDING = alone(&[HEAD], lua!("policy/sliding"));
    ROLLING = alone(&[HEAD], lua!("policy/rolling"));
    INTERVAL = alone(&[HEAD], lua!("policy/interval"));
    QUEUE = alone(&[HEAD, PACE], lua!("policy/queue"));
    TOGETHER = together();
    REDIS_RATE_GCRA = foreign(&[HEAD, FOREIGN, PACE], lua!("foreign/redis_rate_gcra"));
    COUNTER = foreign(&[HEAD, FOREIGN], lua!("foreign/counter"));
    TOKENS = foreign(&[HEAD, FOREIGN], lua!("foreign/tokens"));
    LOG = foreign(&[HEAD, FOREIGN], lua!("foreign/log"));
    QUOTA_FIXED = foreign(&[HEAD, FOREIGN], lua!("foreign/quota_fixed"));
    QUOTA_ROLLING = foreign(&[HEAD, FOREIGN], lua!("foreign/quota_rolling"));
}

/// The script of a limiter with this policy.
pub(super) fn script(kind: &Kind) -> &'static Script {
    match kind {
        Kind::Bucket(_) => &BUCKET,
        Kind::Window(_) => &WINDOW,
        Kind::Sliding(_) => &SLIDING,
        Kind::Rolling(_) => &ROLLING,
        Kind::Interval(_) => &INTERVAL,
        Kind::Queue(_) => &QUEUE,
        Kind::Rgcra(_) => &RGCRA,
        Kind::Foreign(foreign) => match foreign.format {
            Format::RedisRateGcra => &REDIS_RATE_GCRA,
            Format::WindowNumbers | Format::WindowWidths | Format::WindowStarts => &COUNTER,
            Format::Seconds | Format::OrgPathCounter => &COUNTER,
            Format::OrgPathFunnel | Format::AllowList => &TOKENS,
            Format::Log => &LOG,
            Format::MixerFixed => &QUOTA_FIXED,
            Format::MixerRolling => &QUOTA_ROLLING,
        },
    }
}

/// The script of several limiters that are decided together.
pub(super) fn script_together() -> &'static Script {
    &TOGETHER
}
