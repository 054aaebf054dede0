//! The nodes of a cluster: each call goes to the owner of its keys' slot.
//!
//! Nothing is sent twice here: a redirection says that a call was not executed, and after any other failure
//! the engine decides whether to attempt it again, under the same id.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use rand::seq::SliceRandom;
use redis::cmd;

use super::*;

#[cfg(any(all(test, not(shuttle)), feature = "_fuzz"))]
pub(super) mod fuzz;
mod map;
mod open_slot;
pub(super) mod slot;

use map::{Redirect, SlotMap};
use slot::slot_of;

/// The most redirections that a call follows. More than two in a row mean that the nodes disagree, and need
/// time rather than calls.
const REDIRECTS: usize = 5;

/// The shortest time between two readings of the map.
const PAUSE: Duration = Duration::from_millis(100);

/// How long to wait for one node's map.
const LIMIT: Duration = Duration::from_secs(2);

pub(crate) struct Nodes {
    settings: Cluster,
    access: Arc<Access>,
    state: Mutex<KnownNodes>,
}

#[derive(Default)]
struct KnownNodes {
    map: SlotMap,
    by_address: HashMap<Address, Arc<Connections>>,
    /// Nodes that failed, or that have redirected calls: before one of them gets another call, the map is
    /// read anew.
    suspects: HashSet<Address>,
    refreshed: Option<Instant>,
    /// The last reading of the map, by runtime.
    readings: HashMap<RuntimeId, Joint<Result<(), Error>>>,
}

struct RoutedCall<'a> {
    command: &'a ServerCommand,
    slot: Option<u16>,
    end: Instant,
}

impl RoutedCall<'_> {
    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }
}

impl Nodes {
    pub(super) fn new(settings: Cluster, access: Arc<Access>) -> Self {
        Nodes { settings, access, state: Mutex::default() }
    }

    /// A number for the node that has these keys, as far as this client knows; 0 if it does not know.
    pub(super) fn part_of(&self, keys: &Keys) -> u64 {
        let slot = slot_of(keys.hash.as_bytes());
        let state = lock(&self.state);
        let Some(owner) = state.map.owner(slot) else { return 0 };
        let mut hasher = DefaultHasher::new();
        owner.hash(&mut hasher);
        hasher.finish()
    }

    /// Sends a command to the node that has its keys, and awaits its reply until the deadline.
    pub(super) async fn send(
        self: &Arc<Self>,
        command: &ServerCommand,
        deadline: Duration,
    ) -> Result<Value, Error> {
        let slot = command.keys().first().map(|key| slot_of(key));
        let call = RoutedCall { command, slot, end: Instant::now() + deadline };
        let mut target = self.target(call.slot, call.left()).await?;
        for _ in 0..REDIRECTS {
            let value = self.send_to(&target, &call).await?;
            match Redirect::read(&value, &target) {
                None => return Ok(value),
                Some(Redirect::Moved(owner)) => target = self.moved(&call, &target, owner),
                Some(Redirect::Ask(_) | Redirect::Split) => {
                    return self.send_in_open_slot(&call, &target, value).await;
                }
                Some(Redirect::Down) => return self.down(&target, value),
            }
        }
        // This happens for a moment after a slot was moved.
        Err(unavailable("the nodes of the cluster send calls to each other").passing())
    }

    /// Reads the map anew, and returns the addresses of the nodes that own slots.
    pub(super) async fn masters(self: &Arc<Self>, limit: Duration) -> Result<Vec<Arc<str>>, Error> {
        self.refresh(limit).await?;
        let owners: BTreeSet<String> =
            lock(&self.state).map.owners().map(|owner| owner.to_string()).collect();
        Ok(owners.into_iter().map(Arc::from).collect())
    }

    pub(super) async fn send_to_master(
        self: &Arc<Self>,
        address: &str,
        command: &ServerCommand,
        limit: Duration,
    ) -> Result<Value, Error> {
        let owner =
            lock(&self.state).map.owners().find(|owner| owner.to_string() == address).cloned();
        let owner = owner.ok_or_else(|| unavailable("the node owns no slots any more"))?;
        let call = RoutedCall { command, slot: None, end: Instant::now() + limit };
        self.send_to(&owner, &call).await
    }

    async fn send_to(&self, target: &Address, call: &RoutedCall<'_>) -> Result<Value, Error> {
        let sent = self.connections(target).call(call.command, call.left()).await;
        sent.map_err(|error| self.failed(target, error))
    }

    /// Hears what is announced at the node that has the channel's slot, until the connection for it is lost or the
    /// slot moves. The search for the node takes up to `limit`.
    pub(super) async fn listen(
        self: &Arc<Self>,
        channel: &Arc<str>,
        heard: &Heard,
        limit: Duration,
    ) -> Result<(), Error> {
        let node = self.target(Some(slot_of(channel.as_bytes())), limit).await?;
        self.connections(&node).listen(channel, heard).await;
        self.suspect(&node);
        Ok(())
    }

    /// The node to try first: the one in the map, unless there is reason to doubt that.
    async fn target(
        self: &Arc<Self>,
        slot: Option<u16>,
        limit: Duration,
    ) -> Result<Address, Error> {
        let known = {
            let state = lock(&self.state);
            // Reading a map again that has just been read would bring nothing new.
            let is_fresh = state.refreshed.is_some_and(|at| at.elapsed() < PAUSE);
            let is_sound = |node: &Address| is_fresh || !state.suspects.contains(node);
            state.target(slot).filter(is_sound)
        };
        if let Some(target) = known {
            return Ok(target);
        }
        self.refresh(limit).await?;
        lock(&self.state).target(slot).ok_or_else(|| unavailable("no node serves the slot"))
    }

    /// Notes that a node has named another owner of the slot, and returns the owner's address.
    fn moved(&self, call: &RoutedCall<'_>, by: &Address, owner: Address) -> Address {
        let owner = self.access.address_map.reachable(owner);
        let (node, owned_by) = (format_args!("{by}"), format_args!("{owner}"));
        self.access.observers.event(&Event::SlotMoved { node, owner: owned_by });
        let mut state = lock(&self.state);
        if let Some(slot) = call.slot {
            state.map.moved(slot, owner.clone());
        }
        // Other slots may have moved too, or all of them after a failover.
        state.suspects.insert(by.clone());
        owner
    }

    fn failed(&self, target: &Address, error: Error) -> Error {
        if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout) {
            self.suspect(target);
        }
        error.with_server(Some(target.to_string().into()))
    }

    /// The answer of a node that cannot serve. The error names the node, which callers above do not know.
    fn down(&self, node: &Address, value: Value) -> Result<Value, Error> {
        reply::accepted(value).map_err(|error| self.failed(node, error))
    }

    fn suspect(&self, node: &Address) {
        lock(&self.state).suspects.insert(node.clone());
    }

    fn connections(&self, address: &Address) -> Arc<Connections> {
        let connect = || {
            let endpoint = self.settings.endpoint(address.clone());
            Arc::new(Connections::new(endpoint.into(), self.access.clone()))
        };
        lock(&self.state).by_address.entry(address.clone()).or_insert_with(connect).clone()
    }

    pub(super) fn runtime_ended(&self, runtime: RuntimeId) {
        let (_ended, nodes) = {
            let mut state = lock(&self.state);
            let nodes: Vec<_> = state.by_address.values().cloned().collect();
            (state.readings.remove(&runtime), nodes)
        };
        for node in nodes {
            node.runtime_ended(runtime);
        }
    }

    /// Reads the map anew, together with all calls that want this; this call waits until `limit`.
    async fn refresh(self: &Arc<Self>, limit: Duration) -> Result<(), Error> {
        let runtime =
            rt::current_id().unwrap_or_else(|| unreachable!("the engine makes calls in a runtime"));
        let reading = {
            let readings = &mut lock(&self.state).readings;
            match readings.get(&runtime) {
                Some(under_way) if under_way.peek().is_none() => under_way.clone(),
                _ => {
                    let reading = joint(self.clone().read_map(), |why| Err(reply::no_stream(why)));
                    readings.insert(runtime, reading.clone());
                    reading
                }
            }
        };
        match tokio::time::timeout(limit, reading).await {
            Ok(done) => done,
            Err(elapsed) => {
                Err(Error::new(ErrorKind::Timeout, Execution::NotExecuted).with_source(elapsed))
            }
        }
    }

    /// Reads the map from any node that answers. Suspects that are added after the node was asked stay.
    async fn read_map(self: Arc<Self>) -> Result<(), Error> {
        let suspects = lock(&self.state).suspects.clone();
        let asked = self.candidates().into_iter().map(|node| self.ask(node));
        let no_nodes = || unavailable("it has no nodes");
        let map = first_success(asked, HEDGE, |_, last| last, no_nodes).await?;
        let known = self.nodes_of(&map);
        let mut state = lock(&self.state);
        let gone: Vec<_> = state.by_address.extract_if(|node, _| !known.contains(node)).collect();
        state.suspects.retain(|node| !suspects.contains(node));
        state.map = map;
        state.refreshed = Some(Instant::now());
        drop(state);
        // Only now, because a connection may run foreign code when it is dropped.
        drop(gone);
        Ok(())
    }

    async fn ask(&self, node: Address) -> Result<SlotMap, Error> {
        let sent = self.connections(&node).send(cmd("CLUSTER").arg("SLOTS"), LIMIT).await;
        let value = sent.and_then(reply::accepted);
        let value = value.map_err(|error| error.with_server(Some(node.to_string().into())))?;
        let reachable = |owner| self.access.address_map.reachable(owner);
        let map = SlotMap::read(ServerAnswer::of(&value), &node, reachable);
        map.ok_or_else(|| unavailable("it has no slots"))
    }

    /// The nodes to ask for the map, starting with those that are not suspected.
    fn candidates(&self) -> Vec<Address> {
        let state = lock(&self.state);
        let mut nodes: Vec<Address> = self.nodes_of(&state.map).into_iter().collect();
        nodes.shuffle(&mut rt::rng());
        nodes.sort_by_key(|node| state.suspects.contains(node));
        nodes
    }

    /// The owners in this map, and the nodes that the user has named.
    fn nodes_of(&self, map: &SlotMap) -> HashSet<Address> {
        let owners = map.owners().map(|owner| (**owner).clone());
        owners.chain(self.settings.addresses()).collect()
    }
}

impl KnownNodes {
    /// The owner of the slot; for calls without keys any node, preferably one that is not suspected.
    fn target(&self, slot: Option<u16>) -> Option<Address> {
        let owner = match slot {
            Some(slot) => self.map.owner(slot)?,
            None => {
                let sound = |owner: &&Arc<Address>| !self.suspects.contains(&***owner);
                self.map.owners().find(sound).or_else(|| self.map.owners().next())?
            }
        };
        Some((**owner).clone())
    }
}
