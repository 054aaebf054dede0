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

fn alone(before: &[&str], file: &str) -> Script {
    composed(OpenSlot::AtReceiver, before, STORED, file)
}

/// The script of a format, which has no parameters of its own. Of several keys some are usually missing, so in a
/// cluster calls wait while the slot is being moved.
fn foreign(pace: &[&str], file: &str) -> Script {
    let before = [&[HEAD, FOREIGN], pace].concat();
    composed(OpenSlot::Waits, &before, "", &[file, "--- record\n", lua!("foreign/record")].concat())
}

fn composed(open_slot: OpenSlot, before: &[&str], stored: &str, file: &str) -> Script {
    let (usual, one) = (lua!("policy/usual"), lua!("policy/one"));
    let after = ["--> names\n", stored, LANE, usual, RULES, CHANGE, WRITE, one, DECIDE].concat();
    Script::new(filled(&[CLOCK, &before.concat(), &after].concat(), file).leak(), open_slot)
}

/// The script of several limiters: a function opens each of them by the rules of its policy.
pub(super) static TOGETHER: LazyLock<Script> = LazyLock::new(|| {
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
});

/// A script that is put together when it is first needed.
macro_rules! lazy {
    ($script:expr) => {{
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| $script);
        &SCRIPT
    }};
}

/// The script of a limiter with this policy.
pub(super) fn script(kind: &Kind) -> &'static Script {
    match kind {
        Kind::Bucket(_) => lazy!(alone(&[HEAD, PACE], lua!("policy/bucket"))),
        Kind::Window(_) => lazy!(alone(&[HEAD], lua!("policy/window"))),
        Kind::Sliding(_) => lazy!(alone(&[HEAD], lua!("policy/sliding"))),
        Kind::Rolling(_) => lazy!(alone(&[HEAD], lua!("policy/rolling"))),
        Kind::Interval(_) => lazy!(alone(&[HEAD], lua!("policy/interval"))),
        Kind::Queue(_) => lazy!(alone(&[HEAD, PACE], lua!("policy/queue"))),
        Kind::Rgcra(_) => {
            lazy!(alone(&[lua!("policy/rgcra"), HEAD, PACE], lua!("policy/bucket")))
        }
        Kind::Foreign(it) => match it.format {
            Format::RedisRateGcra => lazy!(foreign(&[PACE], lua!("foreign/redis_rate_gcra"))),
            Format::WindowNumbers
            | Format::WindowWidths
            | Format::WindowStarts
            | Format::Seconds
            | Format::OrgPathCounter => {
                lazy!(foreign(&[], lua!("foreign/counter")))
            }
            Format::OrgPathFunnel | Format::AllowList => {
                lazy!(foreign(&[], lua!("foreign/tokens")))
            }
            Format::Log => lazy!(foreign(&[], lua!("foreign/log"))),
            Format::MixerFixed => lazy!(foreign(&[], lua!("foreign/quota_fixed"))),
            Format::MixerRolling => lazy!(foreign(&[], lua!("foreign/quota_rolling"))),
        },
    }
}
