//! The scripts, each with the digest that it is called by.

use std::sync::LazyLock;

use redis::Cmd;

/// A script as the server is sent it.
pub(super) struct Script {
    source: &'static str,
    digest: String,
    open_slot: OpenSlot,
}

/// Which node of a cluster can run a script while the slot of its keys is being moved. Whatever a
/// script writes in full or not at all elsewhere, it must not write in part here: a node refuses a
/// command on keys that it does not have, in the middle of a script as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenSlot {
    /// None: it has commands on several keys, which must all exist.
    Waits,
    /// The receiving node, once it has all keys: there a missing key can be written.
    AtReceiver,
    /// The owner as well, if it has the keys of the mode in force.
    AtEither,
}

/// What a call in an open slot begins with.
const OPEN_SLOT: &str = include_str!("../../../lua/part/open_slot.lua");
/// And before it, if its keys are still at the owner.
const KEEP_LOG: &str = include_str!("../../../lua/part/keep_log.lua");

/// A script of parts; they share one scope, so that each sees those before it.
macro_rules! script {
    ($(#[$doc:meta])* $name:ident, $open_slot:ident: $($part:literal),+) => {
        $(#[$doc])*
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            let source = concat!($(include_str!(concat!("../../../lua/", $part, ".lua"))),+);
            Script::new(source, OpenSlot::$open_slot)
        });
    };
}

script!(ACQUIRE, AtEither: "part/hash", "part/clock", "part/arguments", "part/limits", "part/grant_usual",
    "part/numbers", "part/config", "part/lifetime", "part/entry", "part/live_log", "part/settle",
    "part/trim", "part/heal", "part/wait", "part/grant", "part/attempt", "part/share", "part/reserve",
    "part/decide", "acquire");
script!(PEEK, AtEither: "part/hash", "part/clock", "part/limits", "part/numbers", "part/config", "part/entry",
    "part/live_log", "part/read_all", "part/settle", "part/trim", "part/heal", "part/wait", "peek");
script!(RELEASE, AtReceiver: "part/hash", "part/clock", "part/limits", "part/numbers", "part/config",
    "part/lifetime", "part/entry", "part/live_log", "part/read_all", "part/settle", "part/trim",
    "release");
script!(REFUND, AtReceiver: "part/hash", "part/limits", "part/numbers", "part/config", "part/lifetime",
    "part/entry", "part/grant", "refund");
script!(CHARGE, AtReceiver: "part/hash", "part/clock", "part/limits", "part/numbers", "part/config",
    "part/lifetime", "part/entry", "part/live_log", "part/read_all", "part/settle", "part/grant",
    "charge");
script!(TRY_SET_RATE, AtReceiver: "part/hash", "try_set_rate");
script!(SET_RATE, AtReceiver: "part/hash", "part/clock", "part/limits", "part/far_limits", "part/numbers",
    "part/config", "part/lifetime", "part/entry", "part/live_log", "set_rate");
script!(CONFIG, AtEither: "part/hash", "part/limits", "part/numbers", "part/config", "part/stored_rate",
    "config");
script!(DROP_USAGE, AtReceiver: "part/hash", "part/limits", "part/numbers", "part/config",
    "part/stored_rate", "drop_usage");
script!(EXPIRE, AtReceiver: "expire");
script!(CLEAR_EXPIRE, AtReceiver: "part/hash", "part/limits", "part/far_limits", "part/numbers",
    "clear_expire");
script!(RENAME, Waits: "part/hash", "rename");
script!(SIZE_IN_MEMORY, AtReceiver: "size_in_memory");
script!(INSPECT, AtReceiver: "inspect");
script!(REPAIR, AtReceiver: "part/hash", "part/clock", "part/limits", "part/far_limits", "part/numbers",
    "part/config", "part/lifetime", "part/entry", "part/live_log", "part/read_all", "part/settle", "part/trim",
    "part/heal", "part/grant", "repair");
script!(REMOVE_UNUSED, AtReceiver: "part/hash", "part/clock", "part/limits", "part/numbers", "part/config",
    "part/entry", "part/live_log", "part/read_all", "part/settle", "part/trim", "part/heal",
    "remove_unused");

impl Script {
    fn new(source: &'static str, open_slot: OpenSlot) -> Self {
        let digest = redis::Script::new(source).get_hash().to_owned();
        Script { source, digest, open_slot }
    }

    pub(super) fn open_slot(&self) -> OpenSlot {
        self.open_slot
    }

    /// A call by digest with these keys, to which the caller adds up to `args` arguments.
    pub(super) fn call<'a>(
        &self,
        keys: impl ExactSizeIterator<Item = &'a str> + Clone,
        args: usize,
    ) -> Cmd {
        const BYTES_PER_ARG: usize = 24;
        let key_bytes: usize = keys.clone().map(str::len).sum();
        let bytes = 48 + self.digest.len() + key_bytes + args * BYTES_PER_ARG;
        let mut cmd = Cmd::with_capacity(3 + keys.len() + args, bytes);
        cmd.arg("EVALSHA").arg(&self.digest).arg(keys.len());
        for key in keys {
            cmd.arg(key);
        }
        cmd
    }

    /// The same call with the script in full, for a server that does not know it.
    pub(super) fn call_in_full(&self, call: &Cmd) -> Cmd {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(self.source);
        for arg in call.args_iter().skip(2) {
            if let redis::Arg::Simple(arg) = arg {
                cmd.arg(arg);
            }
        }
        cmd
    }

    /// The same call for a slot that is being moved: it declares only the keys at these positions,
    /// and has the names of all keys behind its arguments. In full, as it is rare.
    pub(super) fn call_in_open_slot(&self, call: &Cmd, declared: &[usize]) -> Cmd {
        let words: Vec<&[u8]> = call
            .args_iter()
            .filter_map(|arg| match arg {
                redis::Arg::Simple(word) => Some(word),
                _ => None,
            })
            .collect();
        let keys = super::cluster::keys_of(call);
        let keep_log = if declared.len() > 1 { KEEP_LOG } else { "" };
        let mut cmd = redis::cmd("EVAL");
        cmd.arg([keep_log, OPEN_SLOT, self.source].concat()).arg(declared.len());
        for key in declared {
            cmd.arg(keys[*key]);
        }
        cmd.arg(&words[3 + keys.len()..]).arg(&keys).arg(keys.len());
        cmd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> impl Iterator<Item = &str> {
        source.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with("--"))
    }

    /// How many names a statement declares in the chunk; a list that goes on in the next line ends with a comma.
    fn locals(source: &str) -> usize {
        let lines: Vec<&str> = code(source).collect();
        let mut count = 0;
        for (at, line) in lines.iter().enumerate() {
            let Some(names) = line.strip_prefix("local ") else { continue };
            count += match names.split_once('=') {
                _ if names.starts_with("function ") => 1,
                Some((names, _)) => names.split(',').count(),
                None if names.ends_with(',') => {
                    let rest = lines[at + 1].split('=').next().unwrap();
                    names.split(',').count() - 1 + rest.split(',').count()
                }
                None => names.split("--").next().unwrap().split(',').count(),
            };
        }
        count
    }

    /// Each function that a script makes, and each name that it declares, is made anew at each call; Lua takes
    /// 200 of them. What goes beyond this is better left out than raised.
    #[test]
    fn an_acquire_stays_small() {
        let source = ACQUIRE.source;
        let (lines, locals) = (code(source).count(), locals(source));
        assert!(lines <= 700 && locals <= 80, "{lines} lines, {locals} locals");
        let usual = code(include_str!("../../../lua/part/grant_usual.lua")).count();
        assert!(usual <= 80, "{usual} lines");
    }

    #[test]
    fn locals_are_counted() {
        let source = "local a, b = 1, 2\nlocal c -- d, e\nlocal function f(g)\n  local h\nend\n\
            local i, j,\n  k = unpack(l)\n-- local m\n";
        assert_eq!(locals(source), 7);
    }
}
