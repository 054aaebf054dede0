//! Configuration mistakes of a web service. They usually concern every request, so each is warned of once.

use std::collections::BTreeSet;
use std::fmt;

use crate::client::Client;
use crate::observe::Event;
use crate::rt::{Mutex, lock};

/// The problems of one limit that were warned of. After the first of a kind, the rest is told at DEBUG.
#[derive(Debug, Default)]
pub(super) struct FirstTimes(Mutex<BTreeSet<&'static str>>);

impl FirstTimes {
    /// `limit` is the limit's name, empty if unknown.
    pub(super) fn tell(
        &self,
        client: &Client,
        text: &'static str,
        limit: &str,
        why: fmt::Arguments<'_>,
    ) {
        let is_first = lock(&self.0).insert(text);
        client.report(&Event::LimitTrouble { text, limit, why, is_first });
    }
}
