//! The role of a server: a replica answers reads from old data, and refuses writes.

use std::time::Duration;

use redis::aio::MultiplexedConnection;

use crate::error::Error;
use crate::store::redis::open::OpenConnection;
use crate::store::redis::reply::{self, ServerAnswer};

/// How often a connection is used to ask whether its server is still the master. A master that is demoted by
/// hand keeps its connections.
pub(super) const WATCH: Duration = Duration::from_secs(1);

/// The connection, if its server is a master.
pub(super) async fn of_master(open: OpenConnection) -> Result<OpenConnection, Error> {
    match is_master(open.connection.clone()).await? {
        true => Ok(open),
        false => Err(reply::unavailable("it is a replica").with_server(Some(open.server.clone()))),
    }
}

/// Whether the server at the other end has become a replica. If it does not answer in time, it is not taken
/// for one.
pub(super) async fn is_demoted(connection: MultiplexedConnection) -> bool {
    matches!(tokio::time::timeout(WATCH, is_master(connection)).await, Ok(Ok(false)))
}

/// Whether the server is a master. A server that does not say, because the user may not ask, counts as a
/// master: if it is not, it refuses writes.
async fn is_master(mut connection: MultiplexedConnection) -> Result<bool, Error> {
    let role =
        connection.send_packed_command(&redis::cmd("ROLE")).await.map_err(reply::not_sent)?;
    Ok(ServerAnswer::of(&role).bytes(0).is_none_or(|role| role == b"master"))
}
