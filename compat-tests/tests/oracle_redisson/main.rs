//! Recorded releases of Redisson: how they are recorded, what they do, and that a difference is found. One program,
//! so that each release is recorded once.

mod damage;
mod faithful;
mod lockstep;
mod mixed;
mod recording;
mod self_test;
mod semantics;
