//! Reading the map anew, from any node that answers.

use std::sync::Arc;
use std::time::Duration;

use redis::cmd;

use super::map::SlotMap;
use super::{Nodes, unavailable};
use crate::error::{Error, ErrorKind, Execution};
use crate::rt::{self, lock};
use crate::store::redis::endpoint::Address;
use crate::store::redis::race::{HEDGE, first_success, joint};
use crate::store::redis::reply::{self, ServerAnswer};

/// The shortest time between two readings.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// How long to wait for one node.
const LIMIT: Duration = Duration::from_secs(2);

impl Nodes {
    /// Reads the map anew, together with all calls that want this; this call waits until `limit`.
    pub(super) async fn refresh(self: &Arc<Self>, limit: Duration) -> Result<(), Error> {
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

    async fn read_map(self: Arc<Self>) -> Result<(), Error> {
        let suspects = lock(&self.state).suspects.clone();
        let asked = self.candidates().into_iter().map(|node| self.ask(node));
        let map = first_success(asked, HEDGE, |_, last| last).await;
        let map =
            map.map_err(|failure| failure.unwrap_or_else(|| unavailable("it has no nodes")))?;
        self.refreshed(map, &suspects);
        Ok(())
    }

    async fn ask(&self, node: Address) -> Result<SlotMap, Error> {
        let sent = self.connections(&node).send(cmd("CLUSTER").arg("SLOTS"), LIMIT).await;
        let value = sent.and_then(reply::accepted);
        let value = value.map_err(|error| error.with_server(Some(node.to_string().into())))?;
        let reachable = |owner| self.credentials.reachable(owner);
        let map = SlotMap::read(ServerAnswer::of(&value), &node, reachable);
        map.ok_or_else(|| unavailable("it has no slots"))
    }
}
