//! `acquire`: takes permits.

use redisson_rate_limiter::{Decision, Mode};

use crate::Session;
use crate::args::AcquireArgs;
use crate::exit::{Exit, Failure};
use crate::out::Tone;
use crate::text::duration_rounded_up;

pub async fn run(session: &Session<'_>, args: &AcquireArgs) -> Result<Exit, Failure> {
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
