//! The queue driven in virtual time against a small server of the tests' own.

use super::{Patience, Queue, Request, Ticket, Time};

mod calls;
mod random;
mod waits;
mod world;

use self::world::{Fate, Server, World};

const MS: Time = 1000;
const DEADLINE: Time = 10 * MS;
