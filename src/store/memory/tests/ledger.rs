//! Random programs of several clients against a ledger that knows only who used what, and when:
//! no window of one interval holds more than the rate, nothing fails for ever, and the full rate
//! is back in one interval.
//!
//! What Redisson makes out of nothing (a lost value, a release, a clamped rate) is allowed on
//! top, until an interval after this crate's next audit. Not made by these programs, because no
//! store can know it: the loss of value and log at once; the loss of the log while a client has
//! yet to see a new rate (which fits the value to the log), or followed by an attempt that was
//! dated before it (whose entry then seems to be the youngest when it expires).

use proptest::prelude::*;

use super::program::{CRATE, Step, rates, steps};
use super::redisson::{Answer, Redisson};
use super::*;
use crate::store::total_permits;
use crate::wire::entry::ClientTag;

/// Permits in use, of one budget.
#[derive(Clone, Debug)]
struct Use {
    budget: usize,
    by: usize,
    at: i64,
    permits: u64,
    id: EntryId,
    date: i64,
    granted: u64,
    refunded: u64,
}

/// Permits made out of nothing; no more of them after `until`.
#[derive(Clone, Debug)]
struct Made {
    budget: usize,
    permits: i64,
    until: Option<i64>,
}

struct Pending {
    first: AcquireCall,
    dates: Vec<i64>,
    /// How often the rate had been changed.
    changes: u32,
}

struct World {
    clients: Vec<Client>,
    java: Redisson,
    clock: ManualClock,
    mode: Mode,
    /// Whether Redisson may make permits out of nothing.
    mixed: bool,
    audited: Vec<i64>,
    pending: Vec<Option<Pending>>,
    late: Vec<Option<AcquireCall>>,
    /// Calls that have reserved something, with its date.
    reserved: Vec<Option<(AcquireCall, i64)>>,
    /// The date of the last reservation of all.
    reserved_until: i64,
    rate: u64,
    changes: u32,
    uses: Vec<Use>,
    made: Vec<Made>,
    log_lost: Vec<i64>,
}

/// Redisson is the last of the clients.
const JAVA: usize = CRATE;
/// The budget of the mode OVERALL, behind those that the clients have in PER_CLIENT.
const OVERALL: usize = JAVA + 1;

impl World {
    fn new(mode: Mode, rate: u64, mixed: bool) -> Self {
        let first = client();
        let clients: Vec<Client> = (0..CRATE)
            .map(|n| Client {
                store: first.store.clone(),
                clock: first.clock.clone(),
                keys: Keys::new("api", &format!("client{n}")),
                seen: None,
                ids: n as u8,
                calls: 0,
            })
            .collect();
        let set = Rate::from_wire(mode, rate, I as u64, 0);
        first.store.run(&first.keys, &TrySetRateCall(set)).unwrap();
        World {
            java: Redisson::new(&first.store, Keys::new("api", "java")),
            clock: first.clock.clone(),
            clients,
            mode,
            mixed,
            audited: vec![0; CRATE],
            pending: (0..CRATE).map(|_| None).collect(),
            late: vec![None; CRATE],
            reserved: vec![None; CRATE],
            reserved_until: 0,
            rate,
            changes: 0,
            uses: Vec::new(),
            made: Vec::new(),
            log_lost: vec![0; OVERALL + 1],
        }
    }

    fn t(&self) -> i64 {
        self.clock.now()
    }

    fn in_force(&self) -> Rate {
        Rate::from_wire(self.mode, self.rate, I as u64, 0)
    }

    fn budget(&self, by: usize) -> usize {
        if self.mode == Mode::Overall { OVERALL } else { by }
    }

    fn keys(&self, by: usize) -> (String, String) {
        let keys = &self.clients[by].keys;
        match self.mode {
            Mode::Overall => (keys.value.to_string(), keys.permits.to_string()),
            Mode::PerClient => (keys.client_value.to_string(), keys.client_permits.to_string()),
        }
    }

    fn store(&self) -> &InProcessStore {
        &self.clients[0].store
    }

    fn make(&mut self, budget: usize, permits: i64) {
        if permits > 0 {
            assert!(self.mixed, "only in mixed programs");
            self.made.push(Made { budget, permits, until: None });
        }
    }

    fn in_use(&self, budget: usize) -> i64 {
        let since = self.t() - I;
        let live = self.uses.iter().filter(|used| used.budget == budget && used.at > since);
        live.map(|used| used.permits as i64).sum()
    }

    /// Records what this crate granted, and checks the window that ends now.
    fn granted(
        &mut self,
        by: usize,
        id: EntryId,
        reply: &AcquireReply,
        groups: &[RequestGroup],
        checked: bool,
    ) {
        let mut asked = groups
            .iter()
            .flat_map(|group| std::iter::repeat_n(group.permits, group.count as usize));
        let mut granted = 0;
        for outcome in &reply.outcomes {
            let sum: u64 = asked.by_ref().take(outcome.count as usize).sum();
            if outcome.outcome == Outcome::Granted {
                granted += sum;
            }
        }
        assert_eq!(asked.next(), None);
        if granted == 0 {
            return;
        }
        let (budget, at) = (self.budget(by), self.t());
        let (permits, date) = (granted, reply.entry_date);
        self.uses.push(Use { budget, by, at, permits, id, date, granted, refunded: 0 });
        let made = self.made.iter().filter(|made| made.budget == budget);
        let made: i64 =
            made.filter(|made| made.until.is_none_or(|until| at < until)).map(|m| m.permits).sum();
        if checked {
            let in_use = self.in_use(budget);
            assert!(
                in_use <= self.rate as i64 + made,
                "{in_use} in one interval at {}, rate {}, made {made}",
                at - T0,
                self.rate
            );
        }
    }

    fn send(&mut self, by: usize, mut call: AcquireCall) -> AcquireReply {
        if self.t() - self.audited[by] >= I {
            self.audited[by] = self.t();
            call.audit_limit = u64::MAX;
            let (budget, until) = (self.budget(by), self.t() + I);
            for made in self.made.iter_mut().filter(|made| made.budget == budget) {
                made.until.get_or_insert(until);
            }
        }
        call.limits[0].seen = self.clients[by].seen;
        let before =
            self.store().raw_get(&self.keys(by).0).and_then(|text| text.parse::<i64>().ok());
        let is_known =
            call.limits[0].seen.map_or(self.mode == Mode::Overall, |seen| seen == self.in_force());
        let (groups, earlier) = (call.limits[0].groups.clone(), call.earlier.clone());
        let reply = self.clients[by].send(call).expect("no error");
        assert_eq!(reply.rate.permits(), self.rate);
        // What a release gave back is not taken away, though its entries are still in the log; unless it is more, with
        // what an earlier attempt or a reservation gives back first, than the rate.
        let own = if earlier == Earlier::default() { 0 } else { total_permits(&groups) };
        let is_believed = |before: &i64| is_known && *before + own as i64 <= self.rate as i64;
        if let Some(before) = before.filter(is_believed) {
            let took = decided(&groups, &reply.outcomes)
                .filter(|(.., outcome)| matches!(outcome, Outcome::Granted | Outcome::Reserved(_)));
            let took: u64 = took.map(|(permits, count, _)| permits * count).sum();
            assert!(reply.left >= before - took as i64, "{before} were left, then {reply:?}");
        }
        reply
    }

    /// One of the caller's own uses that is younger than an interval.
    fn pick(&mut self, by: usize, pick: usize, permits: u64) -> Option<&mut Use> {
        let since = self.t() - I;
        let budget = self.budget(by);
        let mine = self.uses.iter_mut();
        let mine = mine.filter(|used| used.by == by && used.budget == budget && used.at > since);
        let mut fit: Vec<_> = mine.filter(|used| used.permits >= permits).collect();
        if fit.is_empty() { None } else { Some(fit.remove(pick % fit.len())) }
    }

    /// None within the last interval.
    fn no_log_lost(&self) -> bool {
        self.log_lost.iter().all(|lost| self.t() >= lost + I)
    }

    /// Whether every value is fitted to the rate in force. The shared one always is; of its own
    /// a client that has seen nothing cannot know.
    fn all_have_seen(&self) -> bool {
        let unknown = self.mode == Mode::Overall;
        self.clients
            .iter()
            .all(|client| client.seen.map_or(unknown, |seen| seen == self.in_force()))
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Sleep(ms) => {
                self.clock.advance(ms);
            }
            Step::Take { by, groups } => {
                let call = self.clients[by].call(&groups);
                let id = call.id;
                let reply = self.send(by, call);
                self.granted(by, id, &reply, &groups, true);
            }
            Step::Singles { by, count } => {
                for _ in 0..count {
                    self.clock.advance(1);
                    self.step(Step::Take { by, groups: vec![request(1, 0)] });
                }
            }
            Step::Lost { by, permits, carried_out } => {
                if self.pending[by].is_some() {
                    return;
                }
                let call = self.clients[by].call(&[request(permits, 0)]);
                let (dates, changes) = (vec![self.t()], self.changes);
                if carried_out {
                    self.send(by, call.clone());
                }
                // It may have fitted the value to a rate that nobody here has seen.
                self.clients[by].seen = None;
                self.pending[by] = Some(Pending { first: call, dates, changes });
            }
            Step::Retry { by } => {
                let Some(pending) = self.pending[by].take() else { return };
                self.clock.advance(1);
                let earlier = Earlier::dated(pending.dates);
                let call = AcquireCall { now: Some(self.t()), earlier, ..pending.first.clone() };
                let reply = self.send(by, call);
                // Granted under a rate that has been lowered since: the page's third exception.
                let checked = pending.changes == self.changes;
                let groups = pending.first.limits[0].groups.clone();
                self.granted(by, pending.first.id, &reply, &groups, checked);
                self.late[by] = Some(pending.first);
            }
            Step::Late { by } => {
                if !self.no_log_lost() {
                    return;
                }
                let Some(call) = self.late[by].take() else { return };
                // Nobody listens; it may at worst take permits that nobody uses.
                let seen = self.clients[by].seen;
                let found =
                    self.store().raw_log(&self.keys(by).1).iter().any(
                        |(_, member)| matches!(unpack(member), Some((id, _)) if call.id.owns(id)),
                    );
                let before = self.store().snapshot();
                let reply = self.store().run(&self.clients[by].keys, &call).unwrap();
                if let Outcome::Reserved(wait) = reply.outcomes[0].outcome {
                    self.reserved_until = self.reserved_until.max(reply.now + wait.ms() as i64);
                }
                if found {
                    assert_eq!(self.store().snapshot(), before);
                }
                self.clients[by].seen = seen;
            }
            Step::Reserve { by, permits } => {
                let groups = vec![request(permits, 2 * I as u64)];
                let call = match self.reserved[by].take() {
                    Some((call, date)) => {
                        if date == self.t() {
                            self.clock.advance(1);
                        }
                        let earlier = Earlier::reserved(date - 2 * I, date);
                        AcquireCall { now: Some(self.t()), earlier, ..call }
                    }
                    None => {
                        let id = EntryId::random(ClientTag([by as u8; 4]), 1);
                        let share = Some(ShareTerms::BESIDE_ANOTHER);
                        let call = self.clients[by].call(&groups);
                        AcquireCall { id, share, reserve: true, ..call }
                    }
                };
                let reply = self.send(by, call.clone());
                if let Outcome::Reserved(wait) = reply.outcomes[0].outcome {
                    let date = self.t() + wait.ms() as i64;
                    self.reserved_until = self.reserved_until.max(date);
                    self.reserved[by] = Some((call, date));
                } else {
                    self.granted(by, call.id, &reply, &call.limits[0].groups, true);
                    if reply.outcomes[0].outcome == Outcome::Granted {
                        self.late[by] = Some(call);
                    }
                }
            }
            Step::Refund { by, pick, permits } => {
                let Some(used) = self.pick(by, pick, permits) else { return };
                used.permits -= permits;
                used.refunded += permits;
                let (id, date, granted, total) = (used.id, used.date, used.granted, used.refunded);
                let credited = self.clients[by].refund(id, date, granted, total);
                assert!(credited <= permits);
                assert_eq!(self.clients[by].refund(id, date, granted, total), 0);
            }
            Step::Release { by, pick, permits } => {
                let Some(used) = self.pick(by, pick, permits) else { return };
                used.permits -= permits;
                assert!(self.clients[by].release(permits) <= permits);
                self.clients[by].seen = None;
            }
            Step::Rate { by, rate, other_mode, state, restart } => {
                if !self.no_log_lost() {
                    return;
                }
                self.rate = rate.unwrap_or(self.rate);
                if other_mode {
                    self.mode = match self.mode {
                        Mode::Overall => Mode::PerClient,
                        Mode::PerClient => Mode::Overall,
                    };
                }
                self.changes += 1;
                self.clients[by].set(Rate::from_wire(self.mode, self.rate, I as u64, 0), state);
                // The caller's own keys; in PER_CLIENT those of the others stay.
                let budget = self.budget(by);
                let all_four = other_mode && state != StateRule::DropNewMode;
                if all_four || state != StateRule::Keep {
                    self.uses.retain(|used| {
                        used.budget != budget
                            && (!all_four || used.budget != by && used.budget != OVERALL)
                    });
                }
                if restart {
                    self.clients.iter_mut().for_each(|client| client.seen = None);
                }
            }
            Step::Forget { by } => {
                self.clients[by].seen = None;
            }
            Step::Peek { by } => {
                let before = self.store().snapshot();
                let available = self.clients[by].available();
                assert!(available <= self.rate);
                assert_eq!(self.store().snapshot(), before);
            }
            Step::Repair { by } => {
                let id = self.clients[by].call(&[request(1, 0)]).id;
                let call = RepairCall { now: Some(self.t()), id, only_look: false };
                self.store().run(&self.clients[by].keys, &call).unwrap();
            }
            Step::RemoveUnused { by } => {
                let at = Some(self.t());
                self.store()
                    .run(&self.clients[by].keys, &RemoveUnusedCall { now: at, age_ms: 0 })
                    .unwrap();
            }
            Step::LoseValue { of } => {
                if self.t() >= self.log_lost[self.budget(of)] + I {
                    self.store().raw_del(&self.keys(of).0);
                }
            }
            Step::LoseLog { of } => {
                let (value, log) = self.keys(of);
                if self.store().raw_get(&value).is_some() && self.all_have_seen() {
                    self.store().raw_del(&log);
                    let budget = self.budget(of);
                    self.log_lost[budget] = self.t();
                }
            }
            Step::JavaTake { permits, twice } => {
                let makes = self.java.makes();
                if makes > 0 && !self.mixed {
                    return;
                }
                let (budget, at) = (self.budget(JAVA), self.t());
                self.make(budget, makes);
                if self.java.acquire(at, permits, twice) == Answer::Granted {
                    let permits = permits as u64;
                    let (id, granted) = (EntryId([0xee; 16]), permits);
                    let by = JAVA;
                    self.uses.push(Use {
                        budget,
                        by,
                        at,
                        permits,
                        id,
                        date: at,
                        granted,
                        refunded: 0,
                    });
                }
            }
            Step::JavaAvailable => {
                let makes = self.java.makes();
                if makes > 0 && !self.mixed {
                    return;
                }
                self.make(self.budget(JAVA), makes);
                self.java.available(self.t());
            }
            Step::JavaRelease { pick, permits } => {
                if !self.mixed {
                    return;
                }
                let makes = self.java.makes();
                let Some(used) = self.pick(JAVA, pick, permits) else { return };
                used.permits -= permits;
                let made = self.java.release(permits as i64) + makes;
                self.make(self.budget(JAVA), made);
            }
            Step::JavaRate { rate } => {
                if !self.no_log_lost() || !self.mixed {
                    return;
                }
                self.rate = rate as u64;
                self.changes += 1;
                let made = self.java.update_rate(self.t(), rate);
                self.make(self.budget(JAVA), made);
            }
        }
    }

    /// After this crate's next look the full rate is back within an interval.
    fn end(mut self) {
        // What is reserved, and not asked for again, comes back an interval after its date.
        self.clock.advance((self.reserved_until - self.t()).max(0));
        for by in 0..CRATE {
            let call =
                AcquireCall { audit_limit: u64::MAX, ..self.clients[by].call(&[request(1, 0)]) };
            self.clients[by].send(call).expect("no error");
        }
        self.clock.advance(I);
        let budgets = if self.mode == Mode::Overall { 1 } else { CRATE };
        for by in 0..budgets {
            self.clients[by].grant(self.rate);
        }
    }
}

fn play(mode: Mode, rate: u64, mixed: bool, is_4_8: bool, steps: Vec<Step>) {
    let mut world = World::new(mode, rate, mixed);
    world.java.is_4_8 = is_4_8;
    for step in steps {
        world.step(step);
    }
    world.end();
}

proptest! {
    #![proptest_config(cases(3))]

    #[test]
    fn no_window_exceeds_the_rate(rate in rates(), steps in steps()) {
        play(Mode::Overall, rate, false, false, steps);
    }

    #[test]
    fn with_redissons_faults_no_more_than_they_make(
        rate in rates(),
        is_4_8 in any::<bool>(),
        steps in steps(),
    ) {
        play(Mode::Overall, rate, true, is_4_8, steps);
    }

    #[test]
    fn each_client_has_its_own_budget_in_per_client(rate in rates(), steps in steps()) {
        play(Mode::PerClient, rate, true, false, steps);
    }
}
