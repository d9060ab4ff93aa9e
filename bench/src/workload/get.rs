//! Reads of single keys.

use anyhow::{Result, ensure};
use gitcd::proto::etcdserverpb::kv_client::KvClient;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::transport::Channel;

use super::closed::Closed;
use super::{Load, Spec};
use crate::client::{self, revision_in};
use crate::data::DEPLOYMENTS;
use crate::load::{Done, Step};

/// Linearizable gets of random keys.
pub(super) const GET: Closed<Getter> = Closed {
    spec: Spec {
        name: "get",
        what: "linearizable get of a random one of 5,000 keys",
        unit: "gets",
        clients: 64,
        weight: 1.0,
        whole: false,
        goal: Some(1.4),
        load: Load::Get,
        keys: DEPLOYMENTS,
    },
    client: |target, number| Getter { kv: target.client.kv(number), random: StdRng::from_os_rng() },
};

pub(super) struct Getter {
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
