//! One limiter, two clients: each scenario runs with every pair of Rust and
//! Java peers, on servers that the tests start.

mod budget;
mod classes;
mod faults;
mod groups;
mod leases;
mod lifetime;
mod loads;
mod names;
mod operations;
mod outage;
mod pauses;
mod rates;
mod state;
mod waiting;
mod wire;
