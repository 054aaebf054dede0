//! The scripts, each with the digest that it is called by.

use std::sync::LazyLock;

use redis::Cmd;

/// A script as the server is sent it.
pub(super) struct Script {
    source: &'static str,
    digest: String,
}

/// A script of parts; they share one scope, so that each sees those before it.
macro_rules! script {
    ($(#[$doc:meta])* $name:ident: $($part:literal),+) => {
        $(#[$doc])*
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!($(include_str!(concat!("../../../lua/", $part, ".lua"))),+))
        });
    };
}

script!(ACQUIRE: "part/hash", "part/clock", "part/limits", "part/acquire_fast", "part/numbers",
    "part/config", "part/lifetime", "part/entry", "part/live_log", "part/settle", "part/trim",
    "part/heal", "part/wait", "part/grant", "part/attempt", "part/share", "part/decide",
    "acquire");
script!(PEEK: "part/hash", "part/clock", "part/limits", "part/numbers", "part/config", "part/entry",
    "part/live_log", "part/settle", "part/trim", "part/heal", "part/wait", "peek");
script!(RELEASE: "part/hash", "part/clock", "part/limits", "part/numbers", "part/config",
    "part/lifetime", "part/entry", "part/live_log", "part/settle", "part/trim", "release");
script!(REFUND: "part/hash", "part/limits", "part/numbers", "part/config", "part/lifetime",
    "part/entry", "part/grant", "refund");
script!(TRY_SET_RATE: "part/hash", "try_set_rate");
script!(SET_RATE: "part/hash", "part/clock", "part/limits", "part/numbers", "part/config",
    "part/lifetime", "part/entry", "part/live_log", "set_rate");
script!(CONFIG: "part/hash", "part/limits", "part/numbers", "part/config", "config");
script!(EXPIRE: "expire");
script!(CLEAR_EXPIRE: "part/hash", "part/limits", "part/numbers", "clear_expire");
script!(RENAME: "part/hash", "rename");
script!(SIZE_IN_MEMORY: "size_in_memory");

impl Script {
    fn new(source: &'static str) -> Self {
        let digest = redis::Script::new(source).get_hash().to_owned();
        Script { source, digest }
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
}
