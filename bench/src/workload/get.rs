//! Reads of single keys.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::{BoxFuture, FutureExt};
use gitcd::proto::etcdserverpb::kv_client::KvClient;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::transport::Channel;

use super::{Spec, Workload};
use crate::client::{self, revision_in};
use crate::data::DEPLOYMENTS;
use crate::load::{Done, Step, Tally, closed_loop};
use crate::target::Target;

/// Linearizable gets of random keys.
pub(super) struct Get;

impl Workload for Get {
    fn spec(&self) -> Spec {
        Spec {
            name: "get",
            what: "linearizable get of a random one of 5,000 keys",
            unit: "gets",
            clients: 64,
            weight: 1.0,
            whole: false,
            goal: Some(1.4),
        }
    }

    fn prepare<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<()>> {
        target.fill(DEPLOYMENTS).boxed()
    }

    fn slice<'a>(&'a self, target: &'a Target, length: Duration) -> BoxFuture<'a, Result<Tally>> {
        let clients = (0..self.spec().clients)
            .map(|number| Getter { kv: target.client.kv(number), random: StdRng::from_os_rng() });
        closed_loop(target, clients.collect(), length).boxed()
    }
}

struct Getter {
    kv: KvClient<Channel>,
    random: StdRng,
}

impl Step for Getter {
    async fn step(&mut self) -> Result<Done> {
        let key = DEPLOYMENTS.key(self.random.random_range(0..DEPLOYMENTS.keys));
        let answer = self.kv.range(client::get(key.clone())).await?.into_inner();
        let right = answer.kvs.len() == 1 && answer.kvs[0].key == key;
        ensure!(right, "a get of {key:?} did not find it");
        Ok(Done { revision: revision_in(answer.header.as_ref()), conflicts: 0 })
    }
}
