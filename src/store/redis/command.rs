//! Commands for a server: the call of a script, or a plain command.

use std::ops::Range;

use redis::{Cmd, ToRedisArgs};

use super::*;
use crate::rate::Rate;
use crate::wire::texts;

/// A script in the form in which it is sent.
pub(crate) struct Script {
    source: &'static str,
    digest: String,
    pub(super) open_slot: OpenSlot,
}

/// The nodes of a cluster that can run a script while the slot of its keys is being moved. A script that
/// writes everything or nothing elsewhere must not write only a part here: a node refuses a command on keys
/// that it does not have, even in the middle of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenSlot {
    /// None: the script has commands on several keys, which must all exist.
    Waits,
    /// The receiving node, once it has all keys: a missing key can be written there.
    AtReceiver,
    /// The owner as well, if it has the keys of the mode in force.
    AtEither,
}

/// The beginning of a call in an open slot.
const OPEN_SLOT: &str = include_str!("../../../lua/part/open_slot.lua");
/// The part before [`OPEN_SLOT`] if the keys are still at the owner.
const KEEP_LOG: &str = include_str!("../../../lua/part/keep_log.lua");

/// Composes a script of parts, which share one scope, so that each sees the parts before it. For the files of
/// a folder in `src/store`.
///
/// A script `of a limiter` has the parts for a call that is not an acquire, of which it needs some; one that
/// `acquires` has those of an acquire.
macro_rules! script {
    ($name:ident, $open_slot:ident, acquires: $($before:literal),+; $($after:literal),*) => {
        script!($name, $open_slot: "part/hash", "part/clock", $($before,)+ "part/numbers", "part/config",
            "part/lifetime", "part/entry", "part/live_log", "part/settle", "part/trim", "part/heal", "part/wait",
            "part/grant", "part/attempt", "part/share", "part/reserve", "part/decide", $($after,)* "acquire");
    };
    ($name:ident, $open_slot:ident, of a limiter: $($part:literal),+) => {
        script!($name, $open_slot: "part/hash", "part/clock", "part/limits", "part/far_limits", "part/numbers",
            "part/config", "part/lifetime", "part/entry", "part/live_log", "part/read_all", "part/settle",
            "part/trim", "part/heal", "part/wait", "part/grant", $($part),+);
    };
    ($name:ident, $open_slot:ident: $($part:literal),+) => {
        static $name: std::sync::LazyLock<$crate::store::redis::Script> =
            std::sync::LazyLock::new(|| {
                let source = concat!($(include_str!(concat!("../../../lua/", $part, ".lua"))),+);
                $crate::store::redis::Script::new(
                    source,
                    $crate::store::redis::OpenSlot::$open_slot,
                )
            });
    };
}
pub(crate) use script;

impl Script {
    pub(crate) fn new(source: &'static str, open_slot: OpenSlot) -> Self {
        let digest = redis::Script::new(source).get_hash().to_owned();
        Script { source, digest, open_slot }
    }

    #[cfg(test)]
    pub(crate) fn source(&self) -> &'static str {
        self.source
    }
}

/// A command with its arguments. A script is called by its digest.
pub(crate) struct ServerCommand {
    pub(super) script: Option<&'static Script>,
    pub(super) cmd: Cmd,
    /// The keys among the words after the name.
    keys: Range<usize>,
}

impl ServerCommand {
    pub(crate) fn script(script: &'static Script, keys: &[&str]) -> Self {
        // Room for the usual call: growing step by step takes a tenth of a lone call's instructions.
        let mut cmd = Cmd::with_capacity(16, 384);
        cmd.arg("EVALSHA").arg(&script.digest).arg(keys.len()).arg(keys);
        ServerCommand { script: Some(script), cmd, keys: 2..2 + keys.len() }
    }

    pub(crate) fn of_limiter(script: &'static Script, keys: &Keys) -> Self {
        ServerCommand::script(script, &keys.all())
    }

    /// A command with these arguments, which are all keys if it has any.
    pub(crate) fn plain(name: &str, keys: &[&str]) -> Self {
        let mut cmd = redis::cmd(name);
        cmd.arg(keys);
        ServerCommand { script: None, cmd, keys: 0..keys.len() }
    }

    /// The source of a script, with one key.
    pub(crate) fn source(source: &str, key: &str) -> Self {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(source).arg(1).arg(key);
        ServerCommand { script: None, cmd, keys: 2..3 }
    }

    pub(crate) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.cmd.arg(arg);
        self
    }

    /// Appends a number; an empty argument if there is none, as for the time of a call that the server dates.
    pub(crate) fn opt(self, number: Option<impl ToRedisArgs>) -> Self {
        match number {
            Some(number) => self.arg(number),
            None => self.arg(""),
        }
    }

    /// Appends the whole rate as one argument, so that a script compares it with the hash at once.
    pub(crate) fn seen(self, seen: Option<Rate>) -> Self {
        match seen {
            // Not by `format!`, which takes three times as long, in each call.
            Some(rate) => {
                let [permits, interval, mode, keep_alive] = texts(&rate);
                self.arg([mode, permits, interval, keep_alive].join(" "))
            }
            None => self.arg(""),
        }
    }

    fn words(&self) -> impl Iterator<Item = &[u8]> {
        let words = self.cmd.args_iter().filter_map(|arg| match arg {
            redis::Arg::Simple(word) => Some(word),
            _ => None,
        });
        words.skip(1)
    }

    pub(super) fn keys(&self) -> Vec<&[u8]> {
        self.words().skip(self.keys.start).take(self.keys.len()).collect()
    }

    /// This call with the script in full, for a server that does not know it.
    pub(super) fn in_full(&self, script: &Script) -> Cmd {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(script.source);
        for word in self.words().skip(1) {
            cmd.arg(word);
        }
        cmd
    }

    /// This call for a slot that is being moved: it declares only the keys at these positions, and passes the
    /// names of all keys after its arguments. It is sent in full because it is rare.
    pub(super) fn in_open_slot(&self, script: &Script, declared: &[usize]) -> ServerCommand {
        let keys = self.keys();
        let arguments: Vec<&[u8]> = self.words().skip(2 + keys.len()).collect();
        let keep_log = if declared.len() > 1 { KEEP_LOG } else { "" };
        let mut cmd = redis::cmd("EVAL");
        cmd.arg([keep_log, OPEN_SLOT, script.source].concat()).arg(declared.len());
        for key in declared {
            cmd.arg(keys[*key]);
        }
        cmd.arg(&arguments).arg(&keys).arg(keys.len());
        ServerCommand { script: None, cmd, keys: 2..2 + declared.len() }
    }
}
