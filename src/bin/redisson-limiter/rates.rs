//! `set`, `update` and `reset`: commands that replace a limiter or its usage.

use redisson_rate_limiter::{Error, ErrorKind, Mode, Rate, RateLimiter, Usage};

use crate::Session;
use crate::args::{Common, ResetArgs, SetArgs, UpdateArgs};
use crate::exit::{Exit, Failure};
use crate::text::quoted;

pub async fn set(session: &Session<'_>, args: &SetArgs) -> Result<Exit, Failure> {
    let Session { client, common, out } = session;
    let limiter = client.limiter(&args.name)?;
    if args.if_absent {
        let name = quoted(&args.name);
        let is_set = limiter.try_set_rate(args.rate).await?;
        let (exit, said) = match is_set {
            true => (Exit::Done, format!("{name}: {} (a new limiter)\n", args.rate)),
            false => (Exit::No, format!("{name}: there is a limiter already\n")),
        };
        out.print(&said)?;
        return Ok(exit);
    }
    let change = Change::new(&limiter, args.rate, args.reset_usage, common).await?;
    limiter.set_rate_with(args.rate, change.usage).await?;
    out.print(&change.said())?;
    Ok(Exit::Done)
}

pub async fn update(session: &Session<'_>, args: &UpdateArgs) -> Result<Exit, Failure> {
    let Session { client, common, out } = session;
    let limiter = client.limiter(&args.name)?;
    let change = Change::new(&limiter, args.rate, args.reset_usage, common).await?;
    if !limiter.update_rate(args.rate, change.usage).await? {
        return Err(Failure::NoLimiter(args.name.clone()));
    }
    out.print(&change.said())?;
    Ok(Exit::Done)
}

/// A change of a limiter's rate.
struct Change<'a> {
    name: String,
    rate: Rate,
    is_reset: bool,
    client_id: Option<&'a str>,
    usage: Usage,
    /// The previous rate; `None` if there is no limiter.
    before: Result<Option<Rate>, Error>,
}

impl<'a> Change<'a> {
    async fn new(
        limiter: &RateLimiter,
        rate: Rate,
        is_reset: bool,
        common: &'a Common,
    ) -> Result<Self, Failure> {
        let (name, client_id) = (quoted(limiter.name()), common.client_id.as_deref());
        let is_of_no_client = rate.mode() == Mode::PerClient && client_id.is_none();
        if is_of_no_client && is_reset {
            return Err(Failure::Usage(format!(
                "each client of {name} has its own usage: name a client with --client-id; `inspect` \
                 lists them"
            )));
        }
        // Without --client-id the client exists only in this process; its keys must not be written.
        let usage = if is_reset || is_of_no_client { Usage::Reset } else { Usage::Keep };
        let before = match limiter.config().await {
            Err(error) if error.kind() != ErrorKind::CorruptState => return Err(error.into()),
            before => before,
        };
        Ok(Change { name, rate, is_reset, client_id, usage, before })
    }

    /// Describes the rates, and what became of the usage.
    fn said(&self) -> String {
        let Change { name, rate, .. } = self;
        let before = match &self.before {
            Ok(Some(before)) => before,
            Ok(None) => return format!("{name}: {rate} (a new limiter)\n"),
            Err(_) => return format!("{name}: {rate} (what was stored could not be read)\n"),
        };
        let usage = match self.client_id {
            _ if before.mode() != rate.mode() => {
                format!("the usage is forgotten, because the mode was {}", before.mode())
            }
            Some(id) if self.is_reset && rate.mode() == Mode::PerClient => {
                format!("the usage of client {} is forgotten", quoted(id))
            }
            _ if self.is_reset => {
                format!("the usage is forgotten: all {} permits are available", rate.permits())
            }
            _ => "the usage is kept".to_owned(),
        };
        format!("{name}: {rate} (was {before}); {usage}\n")
    }
}

pub async fn reset(session: &Session<'_>, args: &ResetArgs) -> Result<Exit, Failure> {
    let Session { client, common, out } = session;
    let limiter = client.limiter(&args.name)?;
    if args.delete {
        return delete(session, &limiter, args).await;
    }
    let name = quoted(&args.name);
    let no_limiter = || Failure::NoLimiter(args.name.clone());
    let rate = limiter.config().await?.ok_or_else(no_limiter)?;
    let whose = match (rate.mode(), &common.client_id) {
        (Mode::Overall, None) => name.clone(),
        (Mode::PerClient, Some(id)) => format!("client {} of {name}", quoted(id)),
        (Mode::Overall, Some(_)) => {
            return Err(Failure::Usage(format!(
                "all clients of {name} have one usage: leave --client-id out to forget it"
            )));
        }
        (Mode::PerClient, None) => {
            return Err(Failure::Usage(format!(
                "each client of {name} has its own usage: name one with --client-id; \
                 `inspect` lists them"
            )));
        }
    };
    let question =
        format!("Forget the usage of {whose}, so that all {} permits are free?", rate.permits());
    if !out.confirm(&question, args.yes)? {
        return Ok(Exit::Usage);
    }
    // The rate may have changed since it was read; it is left as it is.
    let now = limiter.reset_usage(rate.mode()).await?.ok_or_else(no_limiter)?;
    let is_reset = now.mode() == rate.mode();
    let (exit, said) = match is_reset {
        true => (Exit::Done, format!("{name}: all {} permits are available\n", now.permits())),
        false => {
            let (old, new) = (rate.mode(), now.mode());
            (
                Exit::No,
                format!("{name}: nothing is forgotten, as the mode is {new}, and was {old}\n"),
            )
        }
    };
    out.print(&said)?;
    Ok(exit)
}

async fn delete(
    Session { common, out, .. }: &Session<'_>,
    limiter: &RateLimiter,
    args: &ResetArgs,
) -> Result<Exit, Failure> {
    let name = quoted(&args.name);
    if common.client_id.is_some() {
        return Err(Failure::Usage(format!(
            "--delete removes {name} for all clients: leave --client-id out; or leave --delete out, to \
             forget the usage of that client"
        )));
    }
    let sibling = match limiter.sibling().await {
        // A user who may not look for the sibling may go on, as in Redisson.
        Err(error) if error.kind() == ErrorKind::Auth => None,
        found => found?,
    };
    if let Some(sibling) = sibling {
        return Err(Failure::Usage(format!(
            "the limiter {} has the same value and log: to remove {name} alone, delete the key of that name",
            quoted(&sibling)
        )));
    }
    // A limiter whose rate cannot be read can still be removed.
    let rate = limiter.config().await.ok().flatten();
    let is_per_client = rate.is_some_and(|rate| rate.mode() == Mode::PerClient);
    let question = match is_per_client {
        true => {
            format!("Remove the limiter {name} for all clients? Their values and logs are left.")
        }
        false => format!("Remove the limiter {name}, with all its keys?"),
    };
    if !out.confirm(&question, args.yes)? {
        return Ok(Exit::Usage);
    }
    if !limiter.delete().await? {
        return Err(Failure::NoLimiter(args.name.clone()));
    }
    let left = match is_per_client {
        true => format!(
            "; the values and logs of its clients are left, and count for the next limiter of that name: \
             `doctor {name} --fix` removes them once the last grant is as old as its --orphan-age"
        ),
        false => String::new(),
    };
    out.print(&format!("{name}: removed{left}\n"))?;
    Ok(Exit::Done)
}
