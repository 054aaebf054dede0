//! `acquire`, `set`, `update` and `reset`: commands that change one limiter.

use redisson_rate_limiter::{Decision, ErrorKind, Mode, RateLimiter, Usage};

use crate::Session;
use crate::args::{AcquireArgs, ResetArgs, SetArgs, UpdateArgs};
use crate::exit::{Exit, Failure, Result};
use crate::found::policies_of;
use crate::out::Tone;
use crate::text::{duration_rounded_up, quoted};

pub async fn acquire(session: &Session<'_>, args: &AcquireArgs) -> Result<Exit> {
    let Session { client, common, out } = session;
    let mut limiter = client.limiter(&args.name)?;
    if let Some(rate) = args.rate {
        limiter = limiter.with_rate(rate);
    }
    let decision = limiter.try_acquire(args.permits, args.wait.unwrap_or_default()).await?;
    let rate = match &decision {
        Decision::Granted(grant) => Some(grant.rate()),
        Decision::Denied(denial) => denial.rate(),
    };
    let (exit, said) = match decision {
        Decision::Granted(_) => (Exit::Done, out.paint(Tone::Good, decision.to_string())),
        Decision::Denied(denial) => {
            let least = if denial.is_lower_bound() { "at least " } else { "" };
            let text =
                format!("denied: possible in {least}{}", duration_rounded_up(denial.retry_after()));
            (Exit::No, out.paint(Tone::Bad, text))
        }
    };
    out.print(&format!("{said}\n"))?;
    if rate.is_some_and(|rate| rate.mode() == Mode::PerClient) && common.client_id.is_none() {
        out.complain(
            "each client of this limiter has a budget of its own, and this was a new one: name a client \
             with --client-id; `inspect` lists them",
        );
    }
    Ok(exit)
}

pub async fn set(session: &Session<'_>, args: &SetArgs) -> Result<Exit> {
    let UpdateArgs { name, rate, .. } = &args.update;
    if !args.if_absent {
        return change(session, &args.update, true).await;
    }
    let (exit, said) = match session.client.limiter(name)?.try_set_rate(*rate).await? {
        true => (Exit::Done, format!("{rate} {}", created(session, name).await)),
        false => (Exit::No, "there is a limiter already".to_owned()),
    };
    session.out.print(&format!("{}: {said}\n", quoted(name)))?;
    Ok(exit)
}

pub async fn update(session: &Session<'_>, args: &UpdateArgs) -> Result<Exit> {
    change(session, args, false).await
}

/// Says that the limiter is new, and warns if there are others of its name.
async fn created(Session { client, out, .. }: &Session<'_>, name: &str) -> String {
    if let Some(policies) = policies_of(client, name).await {
        out.complain(&format!(
            "{} also follows a policy ({policies}): limiters of both kinds grant by themselves",
            quoted(name)
        ));
    }
    "(a new limiter)".to_owned()
}

/// Changes the rate, and says what became of the usage.
async fn change(session: &Session<'_>, args: &UpdateArgs, may_create: bool) -> Result<Exit> {
    let Session { client, common, out } = session;
    let UpdateArgs { name, rate, reset_usage } = args;
    let limiter = client.limiter(name)?;
    let name = quoted(name);
    let is_of_no_client = rate.mode() == Mode::PerClient && common.client_id.is_none();
    if is_of_no_client && *reset_usage {
        return Err(Failure::Usage(format!(
            "each client of {name} has its own usage: name a client with --client-id; `inspect` lists them"
        )));
    }
    // Without --client-id the client exists only in this process; its keys must not be written.
    let usage = if *reset_usage || is_of_no_client { Usage::Reset } else { Usage::Keep };
    let before = match limiter.config().await {
        Err(error) if error.kind() != ErrorKind::CorruptState => return Err(error.into()),
        before => before,
    };
    if may_create {
        limiter.set_rate_with(*rate, usage).await?;
    } else if !limiter.update_rate(*rate, usage).await? {
        return Err(Failure::no_limiter(&args.name));
    }
    let said = match before {
        Ok(None) => created(session, &args.name).await,
        Err(_) => "(what was stored could not be read)".to_owned(),
        Ok(Some(before)) => {
            let usage = match &common.client_id {
                _ if before.mode() != rate.mode() => {
                    let left = match rate.mode() {
                        Mode::Overall => "",
                        // Their keys are out of reach of a call for one client.
                        Mode::PerClient => {
                            "; that of clients from an earlier time in the mode PER_CLIENT counts again"
                        }
                    };
                    format!("the usage is forgotten, because the mode was {}{left}", before.mode())
                }
                _ if !reset_usage => "the usage is kept".to_owned(),
                Some(id) if rate.mode() == Mode::PerClient => {
                    format!("the usage of client {} is forgotten", quoted(id))
                }
                _ => {
                    format!("the usage is forgotten: all {} permits are available", rate.permits())
                }
            };
            format!("(was {before}); {usage}")
        }
    };
    out.print(&format!("{name}: {rate} {said}\n"))?;
    Ok(Exit::Done)
}

pub async fn reset(session: &Session<'_>, args: &ResetArgs) -> Result<Exit> {
    let Session { client, common, out } = session;
    let limiter = client.limiter(&args.name)?;
    if args.delete {
        return delete(session, &limiter, args).await;
    }
    let name = quoted(&args.name);
    let no_limiter = || Failure::no_limiter(&args.name);
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
                "each client of {name} has its own usage: name one with --client-id; `inspect` lists them"
            )));
        }
    };
    let question =
        format!("Forget the usage of {whose}, so that all {} permits are free?", rate.permits());
    if !out.confirm(&question, args.yes)? {
        return Ok(Exit::Usage);
    }
    // The rate may have changed since it was read; it is left as it is.
    let (old, now) = (rate.mode(), limiter.reset_usage(rate.mode()).await?.ok_or_else(no_limiter)?);
    let (exit, said) = match now.mode() {
        new if new == old => (Exit::Done, format!("all {} permits are available", now.permits())),
        new => (Exit::No, format!("nothing is forgotten, as the mode is {new}, and was {old}")),
    };
    out.print(&format!("{name}: {said}\n"))?;
    Ok(exit)
}

async fn delete(
    Session { common, out, .. }: &Session<'_>,
    limiter: &RateLimiter,
    args: &ResetArgs,
) -> Result<Exit> {
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
    let rate = match limiter.config().await {
        Err(error) if error.kind() == ErrorKind::CorruptState => None,
        rate => rate?,
    };
    let (whose, left) = match rate.map(|rate| rate.mode()) {
        Some(Mode::PerClient) => (
            " for all clients? Their values and logs are left.",
            format!(
                "; the values and logs of its clients are left, and count for the next limiter of that name: \
                 `doctor {name} --fix` removes them once the last grant is as old as its --orphan-age"
            ),
        ),
        _ => (", with all its keys?", String::new()),
    };
    if !out.confirm(&format!("Remove the limiter {name}{whose}"), args.yes)? {
        return Ok(Exit::Usage);
    }
    if !limiter.delete().await? {
        return Err(Failure::no_limiter(&args.name));
    }
    out.print(&format!("{name}: removed{left}\n"))?;
    Ok(Exit::Done)
}
