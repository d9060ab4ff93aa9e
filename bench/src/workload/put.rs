//! Plain puts to existing keys.

use anyhow::Result;
use gitcd::proto::etcdserverpb::kv_client::KvClient;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::transport::Channel;

use super::closed::Closed;
use super::{GENERATIONS, Load, Spec};
use crate::client::{self, revision_in};
use crate::data::DEPLOYMENTS;
use crate::load::{Done, Step};
use crate::target::Target;

const COMMON: Spec = Spec {
    name: "",
    what: "",
    unit: "puts",
    clients: 64,
    weight: 1.0,
    whole: false,
    goal: None,
    load: Load::Put,
    keys: DEPLOYMENTS,
};

const fn put(spec: Spec) -> Closed<Putter> {
    let client = |target: &Target, number| Putter { kv: target.client.kv(number), random: StdRng::from_os_rng() };
    Closed { spec, client }
}

/// One client: the time of a single durable write.
pub(super) const SEQUENTIAL: Closed<Putter> = put(Spec {
    name: "put-1",
    what: "put to a random one of 5,000 keys, one client",
    clients: 1,
    goal: Some(1.1),
    ..COMMON
});

/// Many clients: what concurrent writes share, above all the fsync.
pub(super) const CONCURRENT: Closed<Putter> =
    put(Spec { name: "put", what: "put to a random one of 5,000 keys", weight: 1.5, goal: Some(1.25), ..COMMON });

/// Many clients without a pause, so that background work can neither be deferred nor hidden. The servers do not take turns, so
/// noise makes the ratio less certain than others: no goal.
pub(super) const SUSTAINED: Closed<Putter> = put(Spec {
    name: "put-sustained",
    what: "the same in one stretch without a pause",
    weight: 3.0,
    whole: true,
    ..COMMON
});

/// Puts to random keys of the 5,000.
pub(super) struct Putter {
    kv: KvClient<Channel>,
    random: StdRng,
}

impl Step for Putter {
    async fn step(&mut self) -> Result<Done> {
        let number = self.random.random_range(0..DEPLOYMENTS.keys);
        let generation = self.random.random_range(1..GENERATIONS);
        let value = DEPLOYMENTS.value(number, generation, self.random.random());
        let put = client::put(DEPLOYMENTS.key(number), value);
        let answer = self.kv.put(put).await?.into_inner();
        Ok(Done { revision: revision_in(answer.header.as_ref()), conflicts: 0 })
    }
}
