//! This crate beside recorded releases of Redisson. One program, so that each release is recorded once.

mod damage;
mod lockstep;
mod mixed;
mod regressions;
mod self_test;
