//! `set`, `update` and `reset`: commands that replace a limiter, or its usage.

use redisson_rate_limiter::{Client, Mode, Rate, Usage};

use crate::args::{Common, Reset, Set, Update};
use crate::exit::{Exit, Failure};
use crate::out::Out;
use crate::text::quoted;

pub async fn set(client: &Client, args: &Set, out: &mut Out) -> Result<Exit, Failure> {
    let limiter = client.limiter(&args.name)?;
    let name = quoted(&args.name);
    if args.if_absent {
        let is_set = limiter.try_set_rate(args.rate).await?;
        let (exit, said) = match is_set {
            true => (Exit::Done, format!("{name}: {}\n", args.rate)),
            false => (Exit::No, format!("{name}: there is a limiter already\n")),
        };
        out.print(&said)?;
        return Ok(exit);
    }
    let before = limiter.config().await.ok().flatten();
    let usage = if args.keep_usage { Usage::Keep } else { Usage::Reset };
    limiter.set_rate_with(args.rate, usage).await?;
    say(out, &name, args.rate, before)
}

pub async fn update(client: &Client, args: &Update, out: &mut Out) -> Result<Exit, Failure> {
    let limiter = client.limiter(&args.name)?;
    let before = limiter.config().await.ok().flatten();
    let usage = if args.reset_usage { Usage::Reset } else { Usage::Keep };
    if !limiter.update_rate(args.rate, usage).await? {
        return Err(Failure::NoLimiter(args.name.clone()));
    }
    say(out, &quoted(&args.name), args.rate, before)
}

/// Says what the rate is now, and what it was.
fn say(out: &mut Out, name: &str, rate: Rate, before: Option<Rate>) -> Result<Exit, Failure> {
    let before = before.map_or(String::new(), |before| format!(" (was {before})"));
    out.print(&format!("{name}: {rate}{before}\n"))?;
    Ok(Exit::Done)
}

pub async fn reset(
    client: &Client,
    args: &Reset,
    common: &Common,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let limiter = client.limiter(&args.name)?;
    let name = quoted(&args.name);
    if args.delete {
        let question = format!("Remove the limiter {name}, with all its keys?");
        if !out.confirm(&question, args.yes)? {
            return Ok(Exit::Usage);
        }
        if !limiter.delete().await? {
            return Err(Failure::NoLimiter(args.name.clone()));
        }
        out.print(&format!("{name}: removed\n"))?;
        return Ok(Exit::Done);
    }
    let rate = limiter.config().await?.ok_or_else(|| Failure::NoLimiter(args.name.clone()))?;
    if rate.mode() == Mode::PerClient && common.client_id.is_none() {
        return Err(Failure::Usage(format!(
            "each client of {name} has its own usage: name one with --client-id; \
             `inspect` lists them"
        )));
    }
    let question =
        format!("Forget the usage of {name}, so that all {} permits are free?", rate.permits());
    if !out.confirm(&question, args.yes)? {
        return Ok(Exit::Usage);
    }
    limiter.set_rate_with(rate, Usage::Reset).await?;
    out.print(&format!("{name}: all {} permits are available\n", rate.permits()))?;
    Ok(Exit::Done)
}
