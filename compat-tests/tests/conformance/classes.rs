//! Callers that leave a part of the rate to others.

use redisson_rate_limiter::Fraction;
use tokio::task::JoinHandle;

use super::*;

/// The limiter of ten permits a second, and a handle of it that leaves two.
async fn users_and_jobs(world: &World) -> (RateLimiter, RateLimiter) {
    let users = world.limiter().await;
    let jobs = users.clone().with_headroom(Fraction::one_of(5)).unwrap();
    (users, jobs)
}

/// A job that waits for this many permits, once it does.
async fn waiting_job(jobs: &RateLimiter, permits: u64) -> JoinHandle<Grant> {
    let waiter = jobs.clone();
    let task = tokio::spawn(async move { waiter.acquire(permits).await.unwrap() });
    while denied(jobs, 1).await.decided_by() != DecidedBy::Queue {
        tokio::task::yield_now().await;
    }
    task
}

conformance! {

async fn a_headroom_is_left(world: World) {
    let (users, jobs) = users_and_jobs(&world).await;
    assert_eq!(granted(&jobs, 5).await.left(), 3);
    world.pass(100);
    assert_eq!(granted(&jobs, 3).await.left(), 0);
    let denial = denied(&jobs, 1).await;
    assert_wait(denial.retry_after(), ms(900));
    assert_wait(denied(&jobs, 6).await.retry_after(), ms(1000));
    assert_eq!(left(&users).await, 2);
    let _user = granted(&users, 2).await;
    assert_wait(denied(&users, 1).await.retry_after(), ms(900));
    // For a job three permits must come back, two of which stay.
    world.pass(900 + LATE);
    assert_eq!(granted(&jobs, 3).await.left(), 0);
    assert_eq!(granted(&users, 2).await.left(), 0);
}

async fn a_request_that_never_leaves_the_headroom_is_an_error(world: World) {
    let (users, jobs) = users_and_jobs(&world).await;
    for error in [
        jobs.try_acquire_now(9).await.unwrap_err(),
        jobs.try_acquire(9, SECOND).await.unwrap_err(),
        jobs.acquire(9).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: 9, rate: 8 }, "{error}");
    }
    assert_eq!(granted(&jobs, 8).await.left(), 0);
    assert_eq!(granted(&users, 2).await.left(), 0);
}

async fn a_headroom_of_nothing_or_all_is_refused(world: World) {
    let users = world.limiter().await;
    for part in [Fraction::new(0, 5), Fraction::ALL, Fraction::new(6, 5), Fraction::new(1, 0)] {
        let error = users.clone().with_headroom(part).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("headroom"), "{error}");
    }
}

async fn a_waiting_job_delays_no_user(world: World) {
    let (users, jobs) = users_and_jobs(&world).await;
    let _spent = granted(&users, 8).await;
    let job = waiting_job(&jobs, 4).await;
    let _first = granted(&users, 1).await;
    let _second = granted(&users, 1).await;
    assert!(!job.is_finished());
    world.pass(1000 + LATE);
    let grant = tokio::time::timeout(SECOND * 60, job).await.unwrap().unwrap();
    assert_eq!(grant.permits(), 4);
}

async fn what_a_user_gives_back_wakes_a_waiting_job(world: World) {
    let (users, jobs) = users_and_jobs(&world).await;
    let mut spent = granted(&users, 10).await;
    let job = waiting_job(&jobs, 4).await;
    assert_eq!(spent.refund(6).await.unwrap(), 6);
    let grant = tokio::time::timeout(SECOND * 60, job).await.unwrap().unwrap();
    assert_eq!((grant.permits(), left(&users).await), (4, 2));
}

async fn jobs_of_one_headroom_are_served_in_order(world: World) {
    let (users, jobs) = users_and_jobs(&world).await;
    let _spent = granted(&users, 10).await;
    let first = waiting_job(&jobs, 8).await;
    let other = users.clone().with_headroom(Fraction::one_of(5)).unwrap();
    let second = tokio::spawn(async move { other.acquire(1).await.unwrap() });
    world.pass(1000 + LATE);
    let grant = tokio::time::timeout(SECOND * 60, first).await.unwrap().unwrap();
    assert_eq!(grant.permits(), 8);
    assert!(!second.is_finished());
    world.pass(1000 + LATE);
    tokio::time::timeout(SECOND * 60, second).await.unwrap().unwrap();
}

async fn a_new_rate_has_a_new_headroom(world: World) {
    let (users, jobs) = users_and_jobs(&world).await;
    let _job = granted(&jobs, 1).await;
    users.set_rate(rate(100)).await.unwrap();
    assert_eq!(granted(&jobs, 80).await.left(), 0);
    let _denied = denied(&jobs, 1).await;
    assert_eq!(granted(&users, 20).await.left(), 0);
}

async fn a_job_leases_nothing(world: World) {
    let client = world.client().await;
    let options = LimiterOptions::new().lease(10, ms(100));
    let users = client.limiter_with("api", options).unwrap();
    users.try_set_rate(rate(10)).await.unwrap();
    let jobs = users.with_headroom(Fraction::one_of(5)).unwrap();
    let _first = granted(&jobs, 1).await;
    let _second = granted(&jobs, 1).await;
    let other = world.client().await.limiter("api").unwrap();
    assert_eq!(left(&other).await, 8);
}

}
