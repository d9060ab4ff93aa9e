//! A server under load: its clients, and the history that has been checked so far.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gitcd::proto::etcdserverpb::lease_client::LeaseClient;
use gitcd::proto::etcdserverpb::{LeaseLeasesRequest, LeaseTimeToLiveRequest};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tonic::Code;
use tonic::transport::Channel;

use super::history::{History, Log, value};
use super::model::{Facts, Model, SHORT_SECONDS};
use super::reader::{Follower, read, read_on};
use super::writer::Writer;
use crate::support::{Kind, Server, eventually};

const WRITERS: usize = 8;
const READERS: usize = 2;

pub(crate) struct Run {
    server: Server,
    history: Arc<History>,
    random: StdRng,
    followers: Vec<Follower>,
    /// The checked history.
    log: Log,
    model: Model,
    /// The model at the end of each check, by revision.
    checkpoints: BTreeMap<i64, Model>,
    proven: Proven,
}

#[derive(Default)]
struct Proven {
    writes: usize,
    unknown: usize,
    reads: usize,
}

impl Run {
    pub(crate) fn new(server: Server, seed: u64) -> Self {
        let followers = [("/registry/", true), ("/registry/pairs/", false), ("/", false)];
        Self {
            server,
            history: Arc::default(),
            random: StdRng::seed_from_u64(seed),
            followers: followers.map(|(prefix, prev_kv)| Follower::new(prefix, prev_kv)).into(),
            log: Log::new(),
            model: Model::empty(),
            checkpoints: BTreeMap::new(),
            proven: Proven::default(),
        }
    }

    #[allow(dead_code, reason = "used by the power-loss tests")]
    /// The server, for a caller that kills and restarts it.
    pub(crate) fn server(&mut self) -> &mut Server {
        &mut self.server
    }

    /// Runs all clients, and kills the server at a random moment.
    pub(crate) async fn load_and_kill(&mut self) {
        let clients = self.load().await;
        let moment = self.random.random_range(20..700);
        tokio::time::sleep(Duration::from_millis(moment)).await;
        self.server.kill();
        self.gather(clients).await;
    }

    /// Runs all clients, and stops the server gracefully under load.
    pub(crate) async fn load_and_stop(&mut self, after: Duration) {
        let clients = self.load().await;
        tokio::time::sleep(after).await;
        if self.server.kind() == Kind::Gitcd {
            self.server.repository().fsck(); // must pass under load, too
        }
        self.server.terminate().await;
        self.gather(clients).await;
        if self.server.kind() == Kind::Gitcd {
            let committed = self.server.repository().committed_revision();
            assert!(
                committed >= self.history.seen(),
                "revision {committed} is committed, but a client had seen {}",
                self.history.seen()
            );
        }
    }

    /// Restarts the server; at random it is killed again during recovery.
    pub(crate) async fn restart(&mut self) {
        while self.random.random_bool(0.3) {
            self.server.begin_restart();
            let moment = self.random.random_range(0..150);
            tokio::time::sleep(Duration::from_millis(moment)).await;
            self.server.kill();
        }
        self.server.restart().await;
    }

    /// Checks everything that can be checked while the server is up.
    pub(crate) async fn check(&mut self) {
        let channel = self.server.channel().await;
        let (asked, acknowledged) = *self.history.compaction();
        let end = read(&channel, "/", 0).await.expect("the server is up").revision;
        let seen = self.history.seen();
        assert!(end >= seen, "the server is at revision {end}, but a client had seen {seen}");

        let log = replay(&channel, asked.max(1) + 1, end).await;
        for (revision, changes) in log.range(..=self.model.revision()) {
            assert_eq!(self.log.get(revision), Some(changes), "revision {revision} has changed");
        }
        self.sample(&channel, asked.max(self.model.revision()), end).await;
        self.prove(log, end);

        for (revision, model) in self.checkpoints.range(asked.max(1)..) {
            let then = read(&channel, "/", *revision).await.expect("the revision is not compacted");
            assert_eq!(then.found, model.list("/"), "revision {revision} now reads differently");
        }
        if acknowledged > 2 {
            let error = read(&channel, "/", acknowledged - 1).await.expect_err("a compaction is as durable as a write");
            assert_eq!(error.code(), Code::OutOfRange);
        }
        self.check_leases(&channel).await;
        self.check_followers(&channel, end).await;
        if self.server.kind() == Kind::Gitcd {
            let repository = self.server.repository();
            repository.fsck();
            repository.verify();
        }
    }

    /// Waits until all keys of short leases have expired, then checks again.
    pub(crate) async fn leases_end(&mut self) {
        let channel = self.server.channel().await;
        let leases = self.history.leases().clone();
        let goes = |lease: i64| leases.get(&lease).is_some_and(|facts| facts.ttl < SHORT_SECONDS);
        eventually("short leases to expire", async || {
            let now = read(&channel, "/", 0).await.expect("the server is up");
            now.found.iter().all(|(_, entry)| !goes(entry.lease)).then_some(())
        })
        .await;
        self.check().await;
    }

    /// Stops the server gracefully, and compares the Git branch with the store's last content.
    pub(crate) async fn stop_and_compare(&mut self) {
        let channel = self.server.channel().await;
        let last = read(&channel, "/", 0).await.expect("the server is up");
        self.server.terminate().await;
        if self.server.kind() != Kind::Gitcd {
            return;
        }
        let repository = self.server.repository();
        repository.fsck();
        assert_eq!(repository.committed_revision(), last.revision);
        let mut files = repository.files(crate::support::DATA);
        for (key, entry) in &last.found {
            let Some(path) = key.strip_prefix("/registry/") else {
                continue; // keys outside the prefix are stored with the metadata
            };
            let file = files.remove(path).unwrap_or_else(|| panic!("{key} is not in the tree"));
            compare(path, &file, &value(entry.op));
        }
        assert!(files.is_empty(), "more in the tree than in the store: {:?}", files.keys());
    }

    /// Starts all clients, which work until the server is gone.
    pub(crate) async fn load(&mut self) -> Clients {
        let channel = self.server.channel().await;
        let mut clients = Clients::default();
        for _ in 0..WRITERS {
            let writer = Writer::new(&self.history, &channel, self.random.random());
            clients.others.spawn(writer.run());
        }
        for _ in 0..READERS {
            clients.others.spawn(read_on(Arc::clone(&self.history), channel.clone(), self.random.random()));
        }
        for follower in self.followers.drain(..) {
            // A connection of its own: a watcher must notice a lost connection by itself.
            let channel = self.server.channel().await;
            clients.followers.spawn(follower.run(Arc::clone(&self.history), channel));
        }
        clients
    }

    /// Waits for all clients of a server that is gone.
    pub(crate) async fn gather(&mut self, clients: Clients) {
        clients.others.join_all().await;
        self.followers = clients.followers.join_all().await;
        self.followers.sort_by_key(|follower| follower.prefix);
    }

    /// Reads random revisions since the last check, to be checked with all other reads.
    async fn sample(&mut self, channel: &Channel, start: i64, end: i64) {
        for _ in 0..5 {
            let revision = self.random.random_range(start..=end);
            let then = read(channel, "/", revision).await.expect("the revision is not compacted");
            self.history.reads().push(then);
        }
    }

    /// Checks the revisions up to `end` against the facts collected since the last check; panics on a violation.
    fn prove(&mut self, log: Log, end: i64) {
        let attempts = std::mem::take(&mut *self.history.attempts());
        let reads = std::mem::take(&mut *self.history.reads());
        let leases = self.history.leases().clone();
        let facts = Facts { attempts: &attempts, reads: &reads, leases: &leases };
        let known = self.missing(&log);
        self.log.extend(known);
        self.log.extend(log);
        if let Err(violation) = self.model.follow(&self.log, end, &facts) {
            panic!("{violation}");
        }
        self.checkpoints.insert(end, self.model.clone());
        self.proven.writes += attempts.len();
        self.proven.unknown +=
            attempts.iter().filter(|attempt| attempt.outcome == super::history::Outcome::Unknown).count();
        self.proven.reads += reads.len();
    }

    /// Returns the revisions that were compacted before the check could replay them, from the follower of all keys.
    fn missing(&self, log: &Log) -> Log {
        let start = self.model.revision() + 1;
        let end = log.first_key_value().map_or(start, |(revision, _)| *revision);
        let follower =
            self.followers.iter().find(|follower| follower.prefix == "/").expect("one follower watches all keys");
        let events = follower.log.range(start..end.max(start));
        events.map(|(revision, changes)| (*revision, changes.clone())).collect()
    }

    async fn check_leases(&self, channel: &Channel) {
        let mut client = LeaseClient::new(channel.clone());
        let listed = client.lease_leases(LeaseLeasesRequest {}).await.expect("the server is up").into_inner();
        let listed: BTreeSet<_> = listed.leases.iter().map(|lease| lease.id).collect();
        let facts = self.history.leases().clone();
        for id in &listed {
            assert!(facts.contains_key(id), "no client was granted lease {id}");
        }
        for (id, facts) in &facts {
            assert!(!(facts.revoked && listed.contains(id)), "lease {id} came back: {facts:?}");
            if facts.granted && !facts.revoke_tried && facts.ttl > SHORT_SECONDS {
                assert!(listed.contains(id), "lease {id} is lost: {facts:?}");
                let request = LeaseTimeToLiveRequest { id: *id, keys: true };
                let answer = client.lease_time_to_live(request).await.expect("the server is up").into_inner();
                assert_eq!(answer.granted_ttl, facts.ttl, "lease {id}");
                let keys: BTreeSet<_> =
                    answer.keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
                let attached = self.model.keys().iter().filter(|(_, entry)| entry.lease == *id);
                assert_eq!(keys, attached.map(|(key, _)| key.clone()).collect(), "keys of lease {id}");
            }
        }
    }

    /// Lets each follower catch up, and checks that it then has exactly its part of the history.
    async fn check_followers(&mut self, channel: &Channel, end: i64) {
        for follower in &mut self.followers {
            let mut part = Log::new();
            for (revision, changes) in self.log.range(..=end) {
                let own: Vec<_> =
                    changes.iter().filter(|change| change.key.starts_with(follower.prefix)).cloned().collect();
                if !own.is_empty() {
                    part.insert(*revision, own);
                }
            }
            let last = part.last_key_value().map_or(0, |(revision, _)| *revision);
            follower.catch_up(channel, last).await;
            let got: Log = follower.log.range(..=end).map(|(revision, changes)| (*revision, changes.clone())).collect();
            for (revision, changes) in &part {
                assert_eq!(got.get(revision), Some(changes), "the watcher of {} at {revision}", follower.prefix);
            }
            assert_eq!(
                got.len(),
                part.len(),
                "the watcher of {} got events that are not in the history",
                follower.prefix
            );
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "revision {}, {} writes ({} of unknown outcome) and {} reads checked, {} keys",
            self.model.revision(),
            self.proven.writes,
            self.proven.unknown,
            self.proven.reads,
            self.model.keys().len()
        )
    }
}

/// The running clients.
#[derive(Default)]
pub(crate) struct Clients {
    others: JoinSet<()>,
    followers: JoinSet<Follower>,
}

/// Returns the events of the revisions from `start` to `end`.
async fn replay(channel: &Channel, start: i64, end: i64) -> Log {
    let mut reader = Follower::new("/", false);
    reader.next = start;
    reader.catch_up(channel, end).await;
    reader.log
}

/// Checks that a file holds its key's value as is, or pretty-printed if it is JSON.
fn compare(path: &str, file: &[u8], value: &[u8]) {
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(value) else {
        assert_eq!(file, value, "{path}");
        return;
    };
    let printed: serde_json::Value =
        serde_json::from_slice(file).unwrap_or_else(|error| panic!("{path}: {error}: {file:?}"));
    assert_eq!(printed, json, "{path}");
    assert!(file.starts_with(b"{\n  \"op\": "), "{path} is not pretty-printed: {}", String::from_utf8_lossy(file));
}
