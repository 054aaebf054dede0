//! The arithmetic of Guava's `SmoothRateLimiter`, term by term, so that each rounding is the same. Times are in
//! microseconds since the limiter's creation. Java's conversion of a double to a long is Rust's `as i64`.

/// The state of a limiter. The names are Guava's, without their units.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// The microseconds in which it warms up, and how many times as long a permit takes when it is cold; `None` if it is
    /// bursty.
    warm_up: Option<(f64, f64)>,
    /// If it warms up: stored permits below it are given out at the rate, those above it more slowly.
    pub(super) threshold: f64,
    /// Microseconds by which each stored permit above the threshold is slower than the one below it.
    pub(super) slope: f64,
    /// Permits that were not used in time.
    pub(super) stored: f64,
    /// The most that can be stored.
    pub(super) max: f64,
    /// Microseconds between permits at the rate.
    pub(super) interval: f64,
    /// When the next request is granted: everything granted so far has been paid for by then.
    pub(super) next: i64,
    /// Counts reservations and new rates, so that the last reservation can be told.
    changes: u64,
}

/// The time of one request, and what is needed to take it back.
#[derive(Clone, Debug)]
pub(super) struct Reservation {
    pub(super) start: i64,
    stored_before: f64,
    change: u64,
}

impl State {
    pub(super) fn new(rate: f64, warm_up: Option<(f64, f64)>) -> Self {
        let [threshold, slope, stored, max, interval] = [0.0; 5];
        let mut state =
            State { warm_up, threshold, slope, stored, max, interval, next: 0, changes: 0 };
        state.set_rate(0, rate);
        state
    }

    pub(super) fn rate(&self) -> f64 {
        1e6 / self.interval
    }

    pub(super) fn set_rate(&mut self, now: i64, rate: f64) {
        self.resync(now);
        self.changes += 1;
        self.interval = 1e6 / rate;
        let old_max = self.max;
        let (at_first, at_infinity);
        if let Some((warm_up, cold_factor)) = self.warm_up {
            let cold = self.interval * cold_factor;
            self.threshold = 0.5 * warm_up / self.interval;
            self.max = self.threshold + 2.0 * warm_up / (self.interval + cold);
            self.slope = (cold - self.interval) / (self.max - self.threshold);
            (at_first, at_infinity) = (self.max, 0.0);
        } else {
            // Guava keeps a second's worth.
            self.max = rate;
            (at_first, at_infinity) = (0.0, self.max);
        }
        self.stored = match old_max {
            0.0 => at_first,
            f64::INFINITY => at_infinity,
            _ => self.stored * self.max / old_max,
        };
    }

    /// Reserves the time of the next permits, if it comes within the timeout.
    pub(super) fn try_reserve(
        &mut self,
        now: i64,
        permits: u32,
        timeout: i64,
    ) -> Option<Reservation> {
        if self.next - timeout > now {
            return None;
        }
        self.resync(now);
        self.changes += 1;
        let reservation =
            Reservation { start: self.next, stored_before: self.stored, change: self.changes };
        let permits = f64::from(permits);
        let spend = java_min(permits, self.stored);
        let fresh = ((permits - spend) * self.interval) as i64;
        // In Guava this sum can overflow, and the limiter's time would jump back.
        let cost = self.cost_of_stored(spend).saturating_add(fresh);
        self.next = self.next.saturating_add(cost);
        self.stored -= spend;
        Some(reservation)
    }

    /// Takes back a reservation that has not started, if it was the last change.
    pub(super) fn cancel(&mut self, now: i64, reservation: &Reservation) {
        if now < reservation.start && self.changes == reservation.change {
            self.next = reservation.start;
            self.stored = reservation.stored_before;
            // Now the reservation before it is the last change, unless a rate was set in between.
            self.changes -= 1;
        }
    }

    /// Stores the permits of the time in which nobody asked.
    fn resync(&mut self, now: i64) {
        if now > self.next {
            let per_permit = self.warm_up.map_or(self.interval, |(warm_up, _)| warm_up / self.max);
            let idle = (now - self.next) as f64;
            self.stored = java_min(self.max, self.stored + idle / per_permit);
            self.next = now;
        }
    }

    /// Microseconds that so many stored permits take: nothing if bursty; if warming up, the integral of a line
    /// that is level up to the threshold and climbs from there on.
    fn cost_of_stored(&self, mut permits: f64) -> i64 {
        if self.warm_up.is_none() {
            return 0;
        }
        let above = self.stored - self.threshold;
        let mut cost: i64 = 0;
        if above > 0.0 {
            let taken = java_min(above, permits);
            let per_permit = |above: f64| self.interval + above * self.slope;
            cost = (taken * (per_permit(above) + per_permit(above - taken)) / 2.0) as i64;
            permits -= taken;
        }
        cost.saturating_add((self.interval * permits) as i64)
    }
}

/// Java's `Math.min`, which is NaN if either number is.
fn java_min(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}
