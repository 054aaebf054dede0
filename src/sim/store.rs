//! The store as a client sees it: the server's, at the other end of a network.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;

use super::network::Link;
use crate::store::{Heard, RefundCall, Reply, StoreCall};
use crate::wire::keys::Keys;

#[derive(Clone)]
pub(crate) struct RemoteStore(pub(super) Arc<Link>);

impl RemoteStore {
    pub(crate) fn run<C: StoreCall>(
        &self,
        keys: &Keys,
        call: C,
        limit: Duration,
    ) -> Reply<C::Reply> {
        if let Some(refund) = (&call as &dyn Any).downcast_ref::<RefundCall>() {
            assert!(refund.returned <= refund.granted, "more given back than was granted");
        }
        self.0.clone().send(keys.clone(), call, limit).boxed()
    }

    pub(crate) async fn listen(self, channel: Arc<str>, heard: Heard) {
        self.0.listen(channel, heard).await;
    }
}
