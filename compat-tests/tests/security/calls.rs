//! Every operation, once or in each of its forms.

use std::time::Duration;

use redisson_rate_limiter::{Client, Error, ExpireCondition, Mode, Rate, Usage};

/// Makes every call on the limiter of this name, and renames it on the way. The errors are those that
/// were not due to the call itself.
pub(crate) async fn all(client: &Client, name: &str, renamed: &str) -> Result<(), Error> {
    const HOUR: Duration = Duration::from_secs(3_600);
    let limiter = client.limiter(name)?;
    let rate = Rate::overall(10, Duration::from_secs(60))?;
    for rate in [rate, Rate::new(Mode::PerClient, 7, Duration::from_millis(50))?, rate] {
        limiter.set_rate(rate).await?;
        limiter.try_set_rate(rate).await?;
        limiter.update_rate(rate, Usage::Keep).await?;
        limiter.set_rate_with(rate, Usage::Reset).await?;
        limiter.ensure_rate(rate).await?;
        if let Some(mut grant) = limiter.try_acquire_now(3).await?.into_grant() {
            grant.refund(1).await?;
        }
        let _ = limiter.try_acquire_now(7).await?;
        let _ = limiter.try_acquire(1, Duration::from_millis(10)).await?;
        limiter.release(1).await?;
        limiter.peek(2).await?;
        limiter.available_permits().await?;
        limiter.config().await?;
        limiter.expire(HOUR, None).await?;
        limiter.expire(HOUR * 2, Some(ExpireCondition::IfGreater)).await?;
        limiter.expire_at(std::time::SystemTime::now() + HOUR, None).await?;
        limiter.remaining_time_to_live().await?;
        limiter.clear_expire().await?;
        limiter.touch().await?;
        limiter.size_in_memory().await?;
        limiter.inspect(100).await?;
        limiter.preview_repair().await?;
        limiter.repair().await?;
        limiter.remove_unused(HOUR).await?;
        limiter.exists().await?;
        // Some of it expires, if the interval is short.
        tokio::time::sleep(Duration::from_millis(if rate.permits() == 7 { 60 } else { 0 })).await;
        limiter.acquire(1).await?;
    }
    limiter.rename(renamed).await?;
    client.limiter(renamed)?.delete().await?;
    limiter.delete().await?;
    client.limiter(name)?.with_rate(rate.with_keep_alive(HOUR)?).acquire(1).await?;
    limiter.delete().await?;
    Ok(())
}
