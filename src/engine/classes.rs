//! The callers of one limiter in classes, by the part of the rate that their grants leave to others.
//!
//! Each class has an engine of its own, and so a queue of its own: a waiting request of a class that leaves more
//! never delays one of a class that leaves less. The first class, which leaves nothing, has the limiter's own
//! engine, which knows the others.

use std::sync::{Arc, Weak};

use super::Engine;
use crate::options::Fraction;
use crate::rate::Rate;
use crate::rt::{Mutex, lock};

/// A class, and the others.
#[derive(Default)]
pub(super) struct Classes {
    /// What its grants leave of the rate.
    pub(super) headroom: Option<Fraction>,
    /// The engine of the first class; dangling in that one itself.
    first: Weak<Engine>,
    /// In the first class: the engines of the others. There are as many as the program names.
    others: Mutex<Vec<Arc<Engine>>>,
}

impl Engine {
    /// The engine of the same limiter for callers that leave this part of the rate. Of the first class only.
    pub(crate) fn class(self: &Arc<Self>, headroom: Fraction) -> Arc<Engine> {
        let remembered = self.remember();
        let mut others = lock(&self.classes.others);
        let known = others.iter().find(|class| class.classes.headroom == Some(headroom));
        if let Some(class) = known {
            return class.clone();
        }
        let (name, keys, core) = (self.name.clone(), self.keys.clone(), self.core.clone());
        let mut class = Engine::new(name, keys, core, Some(remembered));
        class.classes.headroom = Some(headroom);
        class.classes.first = Arc::downgrade(self);
        let class = Arc::new(class);
        // What stands in for the limiter during an outage stands in for all classes: each of them would be
        // granted a part of the rate otherwise.
        class.outage.get_or_init(|| self.outage.get_or_init(Arc::default).clone());
        let _ = class.set_options(&self.options());
        others.push(class.clone());
        class
    }

    /// The engines of the limiter's other classes; none if this is not of the first class.
    pub(crate) fn other_classes(&self) -> Vec<Arc<Engine>> {
        lock(&self.classes.others).clone()
    }

    /// The engines of all classes, the first one first.
    pub(crate) fn all_classes(self: &Arc<Self>) -> Vec<Arc<Engine>> {
        let first = self.first_class().unwrap_or_else(|| self.clone());
        let mut all = first.other_classes();
        all.insert(0, first);
        all
    }

    /// The engine of the first class, if this is of another one.
    pub(super) fn first_class(&self) -> Option<Arc<Engine>> {
        self.classes.first.upgrade()
    }

    /// Whether it leaves something to others.
    pub(crate) fn has_headroom(&self) -> bool {
        self.classes.headroom.is_some()
    }

    /// The permits of this rate that its grants leave.
    pub(crate) fn headroom(&self, rate: Rate) -> u64 {
        self.classes.headroom.map_or(0, |part| part.headroom(rate.permits()))
    }

    /// The most permits that a request of this class can be granted.
    pub(crate) fn most_permits(&self, rate: Rate) -> u64 {
        rate.permits().saturating_sub(self.headroom(rate))
    }
}
