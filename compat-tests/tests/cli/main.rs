//! The program for operators, `redisson-limiter`: run as a process, against servers that these tests start.

mod cluster;
mod commands;
mod doctor;
mod documented;
mod failures;
mod many;
mod names;
mod race;
mod redisson;
mod seed;
mod semaphores;
mod terminal;
mod tool;
