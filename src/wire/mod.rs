//! The format on the server, byte for byte: key names and log entries.
//!
//! Pure functions over bytes: no I/O, no clock, no other module of the crate.

pub(crate) mod entry;
pub(crate) mod keys;
