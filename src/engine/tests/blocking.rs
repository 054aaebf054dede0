//! Callers that block, and the end of the thread that serves them.

use std::thread;

use tokio::sync::oneshot;

use super::{World, client_of, ms};
use crate::error::{Error, ErrorKind, Execution};
use crate::{Client, Clock, LimiterOptions};

/// The thread has the answer, and is busy with something else, when the client is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn close_waits_for_an_answer_that_is_still_to_be_read() {
    let world = World::with_clock(Clock::system());
    let limiter = world.limiter(LimiterOptions::new()).await;
    let core = limiter.engine().core.clone();
    let (answer, answered) = oneshot::channel();
    let caller = thread::spawn({
        let core = core.clone();
        move || core.block_on(async move { Ok(answered.await) })
    });
    while core.tasks.is_idle() {
        tokio::time::sleep(ms(1)).await;
    }
    let own = core.own_runtime().unwrap();
    own.spawn(async { thread::sleep(ms(300)) });
    // More than a thread runs before it looks whether it is to end.
    for _ in 0..200 {
        own.spawn(async {});
    }
    tokio::time::sleep(ms(50)).await;
    answer.send(7).unwrap();
    client_of(&limiter).close().await;
    assert_eq!(caller.join().unwrap().unwrap(), Ok(7));
}

/// It may have been sent, and must not be repeated as if it had not.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_that_close_cuts_off_has_an_unknown_outcome() {
    let world = World::with_clock(Clock::system());
    let client = world.client_by(Client::builder().deadline(ms(100)));
    let core = client.0.core.clone();
    let caller = thread::spawn({
        let core = core.clone();
        move || core.block_on(std::future::pending::<Result<(), Error>>())
    });
    while core.tasks.is_idle() {
        tokio::time::sleep(ms(1)).await;
    }
    client.close().await;
    let error = caller.join().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.execution()), (ErrorKind::Closed, Execution::Unknown));
}
