//! kube-apiserver's writes: transactions that compare one key's revision.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result, ensure};
use gitcd::proto::etcdserverpb::TxnResponse;
use gitcd::proto::etcdserverpb::kv_client::KvClient;
use gitcd::proto::etcdserverpb::response_op::Response;
use gitcd::proto::mvccpb::KeyValue;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::transport::Channel;

use super::closed::Closed;
use super::{Load, Spec};
use crate::client::{self, revision_in};
use crate::data::{DEPLOYMENTS, PODS};
use crate::load::{Done, Step};
use crate::target::Target;

/// New objects.
pub(super) const CREATE: Closed<Creator> = Closed {
    spec: Spec {
        name: "create",
        what: "transaction: put a new key if it does not exist, in 50 directories",
        unit: "creates",
        clients: 64,
        weight: 1.0,
        whole: false,
        goal: Some(1.15),
        load: Load::Create,
        keys: PODS,
    },
    client: |target, number| Creator {
        kv: target.client.kv(number),
        next: target.next_new.clone(),
        random: StdRng::from_os_rng(),
    },
};

pub(super) struct Creator {
    kv: KvClient<Channel>,
    next: Arc<AtomicU64>,
    random: StdRng,
}

impl Step for Creator {
    async fn step(&mut self) -> Result<Done> {
        let number = Target::new_number(&self.next);
        let key = PODS.key(number);
        let value = PODS.value(number, 1, self.random.random());
        let answer = self.kv.txn(client::create(key, value)).await?.into_inner();
        ensure!(answer.succeeded, "new key {number} already exists");
        Ok(Done { revision: revision_in(answer.header.as_ref()), conflicts: 0 })
    }
}

/// Changes to existing objects.
pub(super) const UPDATE: Closed<Updater> = Closed {
    spec: Spec {
        name: "get-update",
        what: "get a random one of 5,000 keys, then transaction: put if it is unchanged, else \
               get and retry",
        unit: "updates",
        clients: 64,
        weight: 1.5,
        whole: false,
        goal: Some(1.4),
        load: Load::Update,
        keys: DEPLOYMENTS,
    },
    client: |target, number| Updater { kv: target.client.kv(number), random: StdRng::from_os_rng() },
};

pub(super) struct Updater {
    kv: KvClient<Channel>,
    random: StdRng,
}

impl Step for Updater {
    async fn step(&mut self) -> Result<Done> {
        let number = self.random.random_range(0..DEPLOYMENTS.keys);
        let key = DEPLOYMENTS.key(number);
        let found = self.kv.range(client::get(key.clone())).await?.into_inner();
        let mut current = found.kvs.into_iter().next().context("a key is missing")?;
        let mut conflicts = 0;
        loop {
            let generation = current.version as u64 + 1;
            let value = DEPLOYMENTS.value(number, generation, self.random.random());
            let update = client::update(key.clone(), current.mod_revision, value);
            let answer = self.kv.txn(update).await?.into_inner();
            if answer.succeeded {
                let revision = revision_in(answer.header.as_ref());
                ensure!(
                    revision > current.mod_revision,
                    "an update of revision {} has revision {revision}",
                    current.mod_revision
                );
                return Ok(Done { revision, conflicts });
            }
            conflicts += 1;
            let newer = found_instead(answer).context("a failed update did not return the value")?;
            ensure!(
                newer.mod_revision > current.mod_revision,
                "an update of the current revision {} was refused",
                current.mod_revision
            );
            current = newer;
        }
    }
}

/// The pair that the else branch of an update returned.
fn found_instead(answer: TxnResponse) -> Option<KeyValue> {
    match answer.responses.into_iter().next()?.response? {
        Response::ResponseRange(range) => range.kvs.into_iter().next(),
        _ => None,
    }
}
