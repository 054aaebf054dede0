//! The queue in virtual time, against a simple model of a server.

use super::{MaxWait, Queue, Request, Ticket, Time};

mod calls;
mod fleet;
mod random;
mod reserve;
mod semaphores;
mod share;
mod waits;
mod world;

use self::world::{Fate, Server, World};

const MS: Time = 1000;
const SECOND: Time = 1000 * MS;
const DEADLINE: Time = 10 * MS;
