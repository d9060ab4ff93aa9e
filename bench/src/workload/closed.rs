//! Workloads whose clients repeat one kind of operation.

use std::time::Duration;

use anyhow::Result;
use futures::future::{BoxFuture, FutureExt};

use super::{Spec, Workload};
use crate::load::{Step, Tally, closed_loop};
use crate::target::Target;

/// Clients that send the next operation after the response to the last one.
pub(super) struct Closed<S> {
    pub(super) spec: Spec,
    /// Creates the client with this number.
    pub(super) client: fn(&Target, usize) -> S,
}

impl<S: Step> Workload for Closed<S> {
    fn spec(&self) -> Spec {
        self.spec
    }

    fn slice<'a>(&'a self, target: &'a Target, length: Duration) -> BoxFuture<'a, Result<Tally>> {
        let clients = (0..self.spec.clients).map(|number| (self.client)(target, number));
        closed_loop(target, clients.collect(), length).boxed()
    }
}
