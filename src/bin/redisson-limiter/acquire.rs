//! `acquire`: takes permits.

use redisson_rate_limiter::{Client, Decision};

use crate::args::Acquire;
use crate::exit::{Exit, Failure};
use crate::out::{Out, Tone};
use crate::text::duration_rounded_up;

pub async fn run(client: &Client, args: &Acquire, out: &mut Out) -> Result<Exit, Failure> {
    let mut limiter = client.limiter(&args.name)?;
    if let Some(rate) = args.rate {
        limiter = limiter.with_rate(rate);
    }
    let decision = limiter.try_acquire(args.permits, args.wait.unwrap_or_default()).await?;
    let (exit, said) = match decision {
        Decision::Granted(_) => (Exit::Done, out.paint(Tone::Good, decision.to_string())),
        Decision::Denied(denial) => {
            let least = if denial.is_at_least() { "at least " } else { "" };
            let text =
                format!("denied: possible in {least}{}", duration_rounded_up(denial.retry_after()));
            (Exit::No, out.paint(Tone::Bad, text))
        }
    };
    out.print(&format!("{said}\n"))?;
    Ok(exit)
}
