//! `gitcd serve --history=git`: a range below the compaction equals that of an etcd that was never compacted, or is refused.

use std::collections::BTreeSet;

use gitcd::proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use gitcd::proto::etcdserverpb::{PutRequest, RangeRequest, RangeResponse};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tonic::{Code, Status};

use super::{KEYS, object};
use crate::support::build::{
    Op, all, compact, delete, delete_prefix, get, grant, list, put, revoke, to_the_end, watch,
};
use crate::support::{Client, Kind, Launch, METADATA, Server, eventually};

const LEASES: [i64; 3] = [0, 71, 72];
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";

/// The same writes to a gitcd and to an etcd that is never compacted.
struct Both {
    gitcd: Server,
    clients: [Client; 2],
    _etcd: Server,
}

impl Both {
    async fn start(granularity: &str) -> Self {
        let launch = Launch::new(Kind::Gitcd).argument("--history=git");
        let gitcd = launch.argument(format!("--commit-granularity={granularity}")).start().await;
        let etcd = Server::start(Kind::Etcd).await;
        let clients = [gitcd.client().await, etcd.client().await];
        let both = Self { gitcd, clients, _etcd: etcd };
        for lease in &LEASES[1..] {
            both.grant(*lease).await;
        }
        both
    }

    async fn grant(&self, lease: i64) {
        for client in &self.clients {
            client.lease_grant(grant(lease, 6000)).await.ok();
        }
    }

    /// Executes operations as one transaction; returns the revision of both stores.
    async fn execute(&self, ops: impl Fn() -> Vec<Op>) -> i64 {
        let mut revisions = BTreeSet::new();
        for client in &self.clients {
            revisions.insert(client.txn(all(ops())).await.ok().header.expect("etcd sends one").revision);
        }
        assert_eq!(revisions.len(), 1, "the stores are at the same revision");
        revisions.pop_first().expect("something was written")
    }

    async fn step(&self, rng: &mut StdRng) -> i64 {
        let some = |rng: &mut StdRng| *KEYS.choose(rng).expect("KEYS is not empty");
        match rng.random_range(0..20) {
            0..3 => {
                let key = some(rng);
                self.execute(|| vec![delete(key).into()]).await
            }
            3 => self.execute(|| vec![delete_prefix("/registry/configmaps/").into()]).await,
            4 => {
                let lease = LEASES[rng.random_range(1..LEASES.len())];
                for client in &self.clients {
                    client.lease_revoke(revoke(lease)).await.ok();
                }
                self.grant(lease).await;
                self.execute(|| vec![get("/registry/a").into()]).await
            }
            5..8 => {
                let keys: BTreeSet<_> = (0..3).map(|_| some(rng)).collect();
                let puts: Vec<_> = keys.into_iter().map(|key| self.put(key, rng)).collect();
                self.execute(|| puts.iter().cloned().map(Op::from).collect()).await
            }
            _ => {
                let put = self.put(some(rng), rng);
                self.execute(|| vec![put.clone().into()]).await
            }
        }
    }

    /// A put of a new value, or of one of few values that the key may have already.
    #[expect(clippy::unused_self, reason = "it reads like the other steps")]
    fn put(&self, key: &str, rng: &mut StdRng) -> PutRequest {
        let value = if rng.random_bool(0.3) { format!("{{\"a\":{}}}\n", rng.random_range(0..2)) } else { object(rng) };
        let lease = if rng.random_bool(0.3) { *LEASES.choose(rng).expect("there are some") } else { 0 };
        PutRequest { lease, ..put(key, &value) }
    }

    async fn committed(&self) {
        eventually("the commits", async || {
            let page: gitcd::status::Status = serde_json::from_str(&self.gitcd.page("/status").await).ok()?;
            (page.branches[0].commit_lag_revisions == 0).then_some(())
        })
        .await;
    }

    /// Compares an answer with etcd's; returns false if it is refused as not recorded.
    async fn agree(&self, range: RangeRequest, context: &str) -> bool {
        let expected = self.clients[1].aside().range(range.clone()).await.ok();
        match self.clients[0].aside().range(range.clone()).await.result() {
            Ok(found) => {
                assert_eq!(content(found), content(expected), "{context}: {range:?}");
                true
            }
            Err(refused) => {
                assert!(is_refusal(&refused), "{context}: {range:?}: {refused}");
                false
            }
        }
    }
}

fn content(answer: RangeResponse) -> (i64, Vec<gitcd::proto::mvccpb::KeyValue>, bool, i64) {
    (answer.header.expect("etcd sends one").revision, answer.kvs, answer.more, answer.count)
}

fn is_refusal(refused: &Status) -> bool {
    let text = refused.message();
    refused.code() == Code::OutOfRange
        && text.starts_with("gitcd: the revision is compacted, and not read from Git: Git does not have revision")
}

/// Ranges with all options of etcd.
fn ranges(revision: i64, rng: &mut StdRng) -> Vec<RangeRequest> {
    let whole = list("/registry/");
    let last = revision.max(1);
    let mut ranges = vec![
        RangeRequest { limit: rng.random_range(1..4), ..whole.clone() },
        RangeRequest { count_only: true, ..whole.clone() },
        RangeRequest { keys_only: true, ..list("/registry/configmaps/") },
        RangeRequest {
            sort_order: SortOrder::Descend as i32,
            sort_target: *[SortTarget::Mod, SortTarget::Value, SortTarget::Version].choose(rng).expect("there are some")
                as i32,
            limit: 3,
            ..whole.clone()
        },
        RangeRequest { min_mod_revision: rng.random_range(1..=last), ..whole.clone() },
        RangeRequest { key: "\0".into(), range_end: to_the_end(), ..RangeRequest::default() },
        RangeRequest {
            key: "/registry/configmaps/n/a".into(),
            range_end: "/registry/pods/n/b".into(),
            ..RangeRequest::default()
        },
        whole,
    ];
    ranges.extend(KEYS.iter().map(|key| get(key)));
    // Half of them each time, so that the test does not take minutes.
    ranges.retain(|_| rng.random());
    for range in &mut ranges {
        range.revision = revision;
        range.serializable = rng.random();
    }
    ranges
}

/// Returns the revisions at which the metadata is recorded.
fn flushes(server: &Server) -> BTreeSet<i64> {
    let subjects = server.repository().git(&["log", "--format=%s", METADATA]);
    let revision = |subject: &str| subject.strip_prefix("metadata at revision ")?.trim().parse().ok();
    subjects.lines().filter_map(revision).collect()
}

#[tokio::test]
async fn each_answer_below_the_compaction_is_that_of_an_etcd_that_was_never_compacted() {
    for granularity in ["revision", "adaptive", "batch"] {
        let seed = rand::rng().random();
        let mut rng = StdRng::seed_from_u64(seed);
        let both = Both::start(granularity).await;
        let mut last = 1;
        for step in 0..90 {
            last = both.step(&mut rng).await;
            if rng.random_bool(0.2) {
                both.committed().await;
            }
            if step % 30 == 29 {
                both.clients[0].compact(compact(last)).await.ok();
            }
        }
        both.committed().await;
        both.execute(|| vec![put("/registry/last", "1").into()]).await;
        both.clients[0].compact(compact(last + 1)).await.ok();
        let (flushes, mut exact, mut refused) = (flushes(&both.gitcd), 0, 0);
        for revision in 2..=last {
            for range in ranges(revision, &mut rng) {
                let context = format!("seed {seed}, {granularity}, revision {revision}");
                let is_answered = both.agree(range.clone(), &context).await;
                assert!(is_answered || !flushes.contains(&revision), "{context} is that of a flush: {range:?}");
                *if is_answered { &mut exact } else { &mut refused } += 1;
            }
        }
        eprintln!(
            "{granularity}: {exact} exact answers, {refused} refused, {} flushes of {last} revisions",
            flushes.len()
        );
        let metrics = both.gitcd.page("/metrics").await;
        assert!(metrics.contains(&format!("gitcd_history_reads_total {exact}.0\n")), "{metrics}");
        assert!(metrics.contains(&format!("gitcd_history_refused_reads_total {refused}.0\n")), "{metrics}");
    }
}

#[tokio::test]
async fn only_ranges_are_read_from_git_and_only_if_it_is_asked_for() {
    for arguments in [&[][..], &["--history=git"]] {
        let launch = Launch::new(Kind::Gitcd).argument("--ephemeral-prefixes=/registry/events");
        let server = arguments.iter().fold(launch, |launch, argument| launch.argument(*argument)).start().await;
        let client = server.client().await;
        let first = client.put(put("/registry/a", "1")).await.ok().header.expect("etcd sends one").revision;
        eventually("the commit", async || (server.repository().committed_revision() >= first).then_some(())).await;
        let last = client.put(put("/registry/a", "2")).await.ok().header.expect("etcd sends one").revision;
        client.compact(compact(last)).await.ok();
        let old = RangeRequest { revision: first, ..get("/registry/a") };
        let answer = client.range(old.clone()).await;
        if arguments.is_empty() {
            assert_eq!(answer.refused(Code::OutOfRange), COMPACTED);
            continue;
        }
        let answer = answer.ok();
        assert_eq!((&answer.kvs[0].value[..], answer.header.expect("etcd sends one").revision), (&b"1"[..], last));
        // A transaction is atomic with its writes, and a watch needs each event.
        assert_eq!(client.txn(all([old.clone()])).await.refused(Code::OutOfRange), COMPACTED);
        let started = gitcd::proto::etcdserverpb::WatchCreateRequest { start_revision: first, ..watch("/registry/a") };
        let mut watching = client.watch();
        assert!(watching.create(started).await.created);
        let cancelled = watching.control().await;
        assert_eq!((cancelled.canceled, cancelled.compact_revision), (true, last));
        let ephemeral = RangeRequest { revision: first, ..list("/registry/") };
        let text = client.range(ephemeral).await.refused(Code::OutOfRange);
        assert!(text.contains("may include keys under an ephemeral prefix, which are never in Git"), "{text}");
        let before = RangeRequest { revision: 1, ..get("/registry/a") };
        assert_eq!(client.range(before).await.ok().count, 0);
    }
}

/// The branch may have had other ephemeral prefixes before, so what Git lacks may have existed.
#[tokio::test]
async fn revisions_before_a_start_without_local_state_are_compacted() {
    let mut server = Launch::new(Kind::Gitcd).argument("--history=git").start().await;
    let client = server.client().await;
    let first = client.put(put("/registry/a", "1")).await.ok().header.expect("etcd sends one").revision;
    server.terminate().await;
    std::fs::remove_dir_all(server.repository().path().join("gitcd/default")).unwrap();
    server.restart().await;
    let client = server.client().await;
    let old = |revision| RangeRequest { revision, ..get("/registry/a") };
    assert_eq!(client.range(old(first)).await.refused(Code::OutOfRange), COMPACTED);
    let started = client.put(put("/registry/a", "2")).await.ok().header.expect("etcd sends one").revision;
    eventually("the commit", async || (server.repository().committed_revision() >= started).then_some(())).await;
    let last = client.put(put("/registry/a", "3")).await.ok().header.expect("etcd sends one").revision;
    client.compact(compact(last)).await.ok();
    assert_eq!(client.range(old(started)).await.ok().kvs[0].value, "2");
    for revision in [first, first + 1, started - 2] {
        assert_eq!(client.range(old(revision)).await.refused(Code::OutOfRange), COMPACTED, "revision {revision}");
    }
}
