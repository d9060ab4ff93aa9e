//! Clients that write until the connection breaks, and record what they attempted.

use std::sync::Arc;
use std::time::Duration;

use gitcd::proto::etcdserverpb::kv_client::KvClient;
use gitcd::proto::etcdserverpb::lease_client::LeaseClient;
use gitcd::proto::etcdserverpb::{CompactionRequest, PutRequest, ResponseHeader, TxnRequest, response_op};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::history::{Action, Attempt, Entry, History, LeaseFacts, Op, Outcome, Read, value};
use crate::support::build::{all, delete, get, grant, ops, put, revoke, unchanged_since};

/// Revisions that stay readable below a compaction: no client lags that far behind.
const KEPT_REVISIONS: i64 = 400;

/// A client that sends random writes.
pub(crate) struct Writer {
    history: Arc<History>,
    kv: KvClient<Channel>,
    leases: LeaseClient<Channel>,
    random: StdRng,
    /// Its current lease, to attach keys to; 0 if none.
    lease: i64,
}

/// The connection broke, so the request in flight has an unknown outcome.
#[derive(Debug)]
pub(crate) struct Broken;

impl Writer {
    pub(crate) fn new(history: &Arc<History>, channel: &Channel, seed: u64) -> Self {
        Self {
            history: Arc::clone(history),
            kv: KvClient::new(channel.clone()),
            leases: LeaseClient::new(channel.clone()),
            random: StdRng::seed_from_u64(seed),
            lease: 0,
        }
    }

    /// Writes until the server is gone.
    pub(crate) async fn run(mut self) {
        while let Ok(()) = self.step().await {
            // Pauses keep the history short enough to be checked in time.
            let pause = self.random.random_range(0..8);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    async fn step(&mut self) -> Result<(), Broken> {
        match self.random.random_range(0..100) {
            0..35 => {
                let lease = if self.random.random_bool(0.3) { self.lease } else { 0 };
                let key = self.key();
                self.put(key, lease).await
            }
            35..55 => self.update().await,
            55..70 => self.create_pair().await,
            70..80 => self.delete_pair().await,
            80..92 => self.delete().await,
            92..96 => self.grant().await,
            96..98 => self.revoke().await,
            _ => self.compact().await,
        }
    }

    async fn put(&mut self, key: String, lease: i64) -> Result<(), Broken> {
        let (op, before) = self.begin();
        let request = PutRequest { lease, ..with_value(&key, op) };
        let answer = self.kv.put(request).await;
        let answer = answer.map(|answer| Outcome::Changed(revision(answer.into_inner().header)));
        self.end(op, before, Action::Put { key, lease }, answer)
    }

    /// Updates as kube-apiserver does: reads, then writes if the key is unchanged.
    async fn update(&mut self) -> Result<(), Broken> {
        let key = self.key();
        let expected = self.read(&key).await?.map_or(0, |entry| entry.changed);
        let (op, before) = self.begin();
        let request = TxnRequest {
            compare: vec![unchanged_since(&key, expected)],
            success: ops([with_value(&key, op)]),
            failure: ops([get(&key)]),
        };
        let answer = self.kv.txn(request).await.map(|answer| {
            let answer = answer.into_inner();
            let revision = revision(answer.header);
            if answer.succeeded {
                return Outcome::Changed(revision);
            }
            for response in answer.responses {
                if let Some(response_op::Response::ResponseRange(answer)) = response.response {
                    let found = answer.kvs.iter().map(|pair| (key.clone(), Entry::of(pair))).collect();
                    self.history.reads().push(Read { revision, prefix: key.clone(), found });
                }
            }
            Outcome::Unchanged(revision)
        });
        self.end(op, before, Action::Update { key, expected }, answer)
    }

    async fn create_pair(&mut self) -> Result<(), Broken> {
        let keys = self.pair();
        let (op, before) = self.begin();
        let request = TxnRequest {
            compare: keys.iter().map(|key| unchanged_since(key, 0)).collect(),
            success: ops(keys.iter().map(|key| with_value(key, op))),
            failure: vec![],
        };
        let answer = self.kv.txn(request).await.map(|answer| {
            let answer = answer.into_inner();
            changed_if(answer.succeeded, answer.header)
        });
        self.end(op, before, Action::CreatePair { keys }, answer)
    }

    async fn delete_pair(&mut self) -> Result<(), Broken> {
        let keys = self.pair();
        let (op, before) = self.begin();
        let answer = self.kv.txn(all(keys.iter().map(|key| delete(key)))).await.map(|answer| {
            let answer = answer.into_inner();
            let deleted = answer.responses.iter().any(|response| {
                matches!(&response.response, Some(response_op::Response::ResponseDeleteRange(answer)) if answer.deleted > 0)
            });
            changed_if(deleted, answer.header)
        });
        self.end(op, before, Action::DeletePair { keys }, answer)
    }

    async fn delete(&mut self) -> Result<(), Broken> {
        let key = self.key();
        let (op, before) = self.begin();
        let answer = self.kv.delete_range(delete(&key)).await.map(|answer| {
            let answer = answer.into_inner();
            changed_if(answer.deleted > 0, answer.header)
        });
        self.end(op, before, Action::Delete { key }, answer)
    }

    async fn grant(&mut self) -> Result<(), Broken> {
        let id = 1_000_000 + self.history.new_op() as i64;
        let ttl = if self.random.random_bool(0.3) { 2 } else { 600 };
        self.history.leases().insert(id, LeaseFacts { ttl, ..LeaseFacts::default() });
        let answer = self.leases.lease_grant(grant(id, ttl)).await;
        answer.map_err(|status| broken(&status))?;
        self.lease(id, |facts| facts.granted = true);
        self.lease = id;
        Ok(())
    }

    async fn revoke(&mut self) -> Result<(), Broken> {
        let lease = std::mem::take(&mut self.lease);
        if lease == 0 {
            return Ok(());
        }
        let (op, before) = self.begin();
        self.lease(lease, |facts| facts.revoke_tried = true);
        let answer = self.leases.lease_revoke(revoke(lease)).await;
        let answer = answer.map(|answer| Outcome::Done(revision(answer.into_inner().header)));
        if answer.is_ok() {
            self.lease(lease, |facts| facts.revoked = true);
        }
        self.end(op, before, Action::Revoke { lease }, answer)
    }

    async fn compact(&mut self) -> Result<(), Broken> {
        let revision = self.history.seen() - KEPT_REVISIONS;
        {
            let mut compaction = self.history.compaction();
            if revision <= compaction.0 + KEPT_REVISIONS / 4 {
                return Ok(());
            }
            compaction.0 = revision;
        }
        let answer = self.kv.compact(CompactionRequest { revision, physical: false }).await;
        answer.map_err(|status| broken(&status))?;
        let mut compaction = self.history.compaction();
        compaction.1 = compaction.1.max(revision);
        Ok(())
    }

    /// Reads one key and records what it saw.
    async fn read(&mut self, key: &str) -> Result<Option<Entry>, Broken> {
        let before = self.history.seen();
        let answer = self.kv.range(get(key)).await.map_err(|status| broken(&status))?.into_inner();
        let revision = revision(answer.header);
        self.history.saw(revision, before);
        let entry = answer.kvs.first().map(Entry::of);
        let found = entry.map(|entry| (key.to_owned(), entry)).into_iter().collect();
        self.history.reads().push(Read { revision, prefix: key.to_owned(), found });
        Ok(entry)
    }

    fn begin(&self) -> (Op, i64) {
        (self.history.new_op(), self.history.seen())
    }

    fn end(&self, op: Op, seen_before: i64, action: Action, answer: Result<Outcome, Status>) -> Result<(), Broken> {
        let outcome = match &answer {
            Ok(outcome) => *outcome,
            // A short lease may have expired before its use.
            Err(status) if status.code() == Code::NotFound => Outcome::Refused,
            Err(_) => Outcome::Unknown,
        };
        if let Outcome::Changed(revision) | Outcome::Unchanged(revision) | Outcome::Done(revision) = outcome {
            self.history.saw(revision, seen_before);
        }
        self.history.attempts().push(Attempt { op, action, seen_before, outcome });
        match answer {
            Err(status) if outcome == Outcome::Unknown => Err(broken(&status)),
            _ => Ok(()),
        }
    }

    fn lease(&self, id: i64, change: impl FnOnce(&mut LeaseFacts)) {
        change(self.history.leases().entry(id).or_default());
    }

    /// Returns one of few keys, so that writers conflict; some are outside the branch's prefix.
    fn key(&mut self) -> String {
        match self.random.random_range(0..20) {
            0 => format!("/elsewhere/k{}", self.random.random_range(0..3)),
            n => format!("/registry/configmaps/ns{}/cm{:02}", n % 4, self.random.random_range(0..12)),
        }
    }

    fn pair(&mut self) -> [String; 2] {
        let number = self.random.random_range(0..25);
        ["left", "right"].map(|side| format!("/registry/pairs/{side}/p{number:02}"))
    }
}

/// Converts the error of a lost connection.
///
/// # Panics
/// If the error is any other.
fn broken(status: &Status) -> Broken {
    let gone = matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal);
    assert!(gone, "unexpected error: {status}");
    Broken
}

fn with_value(key: &str, op: Op) -> PutRequest {
    PutRequest { value: value(op), ..put(key, "") }
}

fn changed_if(changed: bool, header: Option<ResponseHeader>) -> Outcome {
    if changed { Outcome::Changed(revision(header)) } else { Outcome::Unchanged(revision(header)) }
}

pub(crate) fn revision(header: Option<ResponseHeader>) -> i64 {
    header.expect("every answer has a header").revision
}
