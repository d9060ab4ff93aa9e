//! Random requests: etcd and gitcd must answer each alike. `docs/etcd.md` lists the differences that are known; the requests
//! leave them out.
//!
//! | variable | meaning |
//! |---|---|
//! | `GITCD_DIFFERENTIAL_SEED` | the first seed; each case has its own |
//! | `GITCD_DIFFERENTIAL_CASES` | how many cases, each on two new servers |

use bytes::Bytes;
use gitcd::proto::etcdserverpb::compare::TargetUnion;
use gitcd::proto::etcdserverpb::request_op::Request;
use gitcd::proto::etcdserverpb::{
    AlarmRequest, CompactionRequest, Compare, DeleteRangeRequest, LeaseGrantRequest, LeaseLeasesRequest,
    LeaseRevokeRequest, LeaseTimeToLiveRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, WatchCreateRequest,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::support::{Client, Watching, same};

/// Requests in a case.
const REQUESTS: usize = 150;

/// Fewer than Go sorts in place in a stable order: etcd's order of equal elements is otherwise arbitrary.
const KEYS: [&[u8]; 11] = [
    b"/registry/a",
    b"/registry/b",
    b"/registry/c",
    b"/registry/a/b",
    b"/registry/",
    b"/registry0",
    b"/a",
    b"\0",
    b"\xff",
    b"/registry/\xc3\xa9",
    b"/registry/a\0",
];

const VALUES: [&[u8]; 6] =
    [b"", b"1", b"2", b"\0\xff", br#"{"kind":"Pod"}"#, b"a somewhat longer value than the others"];

const LEASES: [i64; 5] = [7, 8, 9, 404, -3];

struct Requests {
    random: StdRng,
    /// The revision of the last answer.
    revision: i64,
    compacted: i64,
}

impl Requests {
    fn one_in(&mut self, number: u32) -> bool {
        self.random.random_ratio(1, number)
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.random.random_range(0..choices.len())].clone()
    }

    fn key(&mut self) -> Bytes {
        if self.one_in(40) { Bytes::new() } else { Bytes::from_static(self.of(&KEYS)) }
    }

    fn value(&mut self) -> Bytes {
        Bytes::from_static(self.of(&VALUES))
    }

    /// A key and the end of a range: one key, a prefix, two keys in any order, or all from the key on.
    fn range(&mut self, to_the_end: bool) -> (Bytes, Bytes) {
        let key = self.key();
        let end = match self.random.random_range(0..6) {
            0 | 1 => Bytes::new(),
            2 => key.iter().rposition(|byte| *byte != 0xff).map_or(Bytes::new(), |last| {
                let mut end = key[..=last].to_vec();
                end[last] += 1;
                end.into()
            }),
            3 if to_the_end => Bytes::from_static(b"\0"),
            _ => self.key(),
        };
        // As one key it would not be a range; as the end of a range, it means all keys.
        if !to_the_end && end[..] == b"\0"[..] { (key, Bytes::new()) } else { (key, end) }
    }

    /// A revision around those that exist.
    fn some_revision(&mut self) -> i64 {
        match self.random.random_range(0..10) {
            0..=3 => 0,
            4..=7 => self.random.random_range(0..=self.revision),
            8 => self.revision + self.random.random_range(0..2),
            _ => self.of(&[-1, 1, i64::MAX, i64::MIN]),
        }
    }

    fn bound(&mut self) -> i64 {
        if self.one_in(5) { self.some_revision() } else { 0 }
    }

    fn range_request(&mut self) -> RangeRequest {
        let (key, range_end) = self.range(true);
        RangeRequest {
            key,
            range_end,
            limit: if self.one_in(3) { self.of(&[1, 2, 3, 100, -1, i64::MAX]) } else { 0 },
            revision: self.some_revision(),
            sort_order: self.random.random_range(0..4),
            sort_target: self.random.random_range(0..6),
            serializable: self.one_in(4),
            keys_only: self.one_in(5),
            count_only: self.one_in(6),
            min_mod_revision: self.bound(),
            max_mod_revision: self.bound(),
            min_create_revision: self.bound(),
            max_create_revision: self.bound(),
        }
    }

    fn put(&mut self) -> PutRequest {
        let ignore_value = self.one_in(10);
        PutRequest {
            key: self.key(),
            value: if ignore_value && !self.one_in(8) { Bytes::new() } else { self.value() },
            lease: if self.one_in(3) { self.of(&LEASES) } else { 0 },
            prev_kv: self.one_in(3),
            ignore_value,
            ignore_lease: self.one_in(12),
        }
    }

    fn delete(&mut self, to_the_end: bool) -> DeleteRangeRequest {
        let (key, range_end) = self.range(to_the_end);
        DeleteRangeRequest { key, range_end, prev_kv: self.one_in(3) }
    }

    fn compare(&mut self) -> Compare {
        let (key, range_end) = if self.one_in(4) { self.range(true) } else { (self.key(), Bytes::new()) };
        let number = if self.one_in(2) { self.some_revision() } else { self.random.random_range(0..4) };
        let operand = match self.random.random_range(0..11) {
            0 | 1 => Some(TargetUnion::Version(number)),
            2 | 3 => Some(TargetUnion::CreateRevision(number)),
            4 | 5 => Some(TargetUnion::ModRevision(number)),
            6 | 7 => Some(TargetUnion::Value(self.value())),
            8 | 9 => Some(TargetUnion::Lease(self.of(&LEASES))),
            _ => None,
        };
        let target = match operand {
            // A target without its operand, or none that exists.
            _ if self.one_in(15) => self.random.random_range(0..6),
            Some(TargetUnion::Version(_)) | None => 0,
            Some(TargetUnion::CreateRevision(_)) => 1,
            Some(TargetUnion::ModRevision(_)) => 2,
            Some(TargetUnion::Value(_)) => 3,
            Some(TargetUnion::Lease(_)) => 4,
        };
        let result = if self.one_in(30) { 4 } else { self.random.random_range(0..4) };
        Compare { result, target, key, range_end, target_union: operand }
    }

    fn operations(&mut self, depth: usize) -> Vec<RequestOp> {
        let count = self.random.random_range(0..4);
        (0..count).map(|_| self.operation(depth)).collect()
    }

    fn operation(&mut self, depth: usize) -> RequestOp {
        let request = match self.random.random_range(0..10) {
            0..=2 => Some(Request::RequestRange(self.range_request())),
            3..=5 => Some(Request::RequestPut(self.put())),
            6 | 7 => Some(Request::RequestDeleteRange(self.delete(false))),
            8 if depth > 0 => Some(Request::RequestTxn(self.txn(depth - 1))),
            _ if self.one_in(20) => None,
            _ => Some(Request::RequestPut(self.put())),
        };
        RequestOp { request }
    }

    fn txn(&mut self, depth: usize) -> TxnRequest {
        let compares = self.random.random_range(0..3);
        TxnRequest {
            compare: (0..compares).map(|_| self.compare()).collect(),
            success: self.operations(depth),
            failure: self.operations(depth),
        }
    }

    fn watch(&mut self) -> WatchCreateRequest {
        let (key, range_end) = self.range(true);
        let filters = self.random.random_range(0..3);
        WatchCreateRequest {
            key,
            range_end,
            // etcd answers no request for progress while a watch waits for its first revision, and none after it canceled one that
            // starts before the compact revision.
            start_revision: if self.one_in(2) { 0 } else { self.random.random_range(self.compacted..=self.revision) },
            progress_notify: self.one_in(4),
            filters: if self.one_in(3) {
                (0..filters).map(|_| self.random.random_range(0..2)).collect()
            } else {
                vec![]
            },
            prev_kv: self.one_in(3),
            watch_id: if self.one_in(5) { self.of(&[1, 2, 50]) } else { 0 },
            fragment: self.one_in(4),
        }
    }

    /// Sends a request, and learns the revision of its answer.
    async fn send(&mut self, client: &Client) {
        macro_rules! ask {
            ($call:ident, $request:expr) => {{
                let request = $request;
                if let Ok(answer) = client.$call(request).await.result() {
                    self.revision = answer.header.map_or(self.revision, |header| header.revision);
                }
            }};
        }
        match self.random.random_range(0..100) {
            0..=24 => ask!(put, self.put()),
            25..=44 => ask!(range, self.range_request()),
            45..=54 => ask!(delete_range, self.delete(true)),
            55..=79 => ask!(txn, self.txn(2)),
            80..=83 => {
                let (revision, physical) = (self.some_revision(), self.one_in(2));
                // Compacted in whole steps of the history, so that enough of it stays.
                let revision = if revision > 0 && revision <= self.revision { revision / 2 } else { revision };
                // At 0, the second compaction differs.
                let revision = if revision == 0 { -1 } else { revision };
                if let Ok(answer) = client.compact(CompactionRequest { revision, physical }).await.result() {
                    self.revision = answer.header.map_or(self.revision, |header| header.revision);
                    self.compacted = revision;
                }
            }
            84..=87 => {
                let (id, ttl) = (self.of(&[7, 8, 9, -3]), self.of(&[600, 700, 9_000_000_001, i64::MAX]));
                ask!(lease_grant, LeaseGrantRequest { id, ttl });
            }
            88..=90 => ask!(lease_revoke, LeaseRevokeRequest { id: self.of(&LEASES) }),
            91 | 92 => {
                let (id, keys) = (self.of(&LEASES), self.one_in(2));
                ask!(lease_time_to_live, LeaseTimeToLiveRequest { id, keys });
            }
            93 => ask!(lease_leases, LeaseLeasesRequest {}),
            94 | 95 => {
                let id = self.of(&LEASES);
                client.keep_alive(id).await;
            }
            _ => {
                // Not raised: that would refuse the rest.
                let (action, alarm) = (self.of(&[0, 2]), self.random.random_range(0..3));
                ask!(alarm, AlarmRequest { action, member_id: 0, alarm });
            }
        }
    }
}

async fn case(client: Client, seed: u64) {
    let mut requests = Requests { random: StdRng::seed_from_u64(seed), revision: 1, compacted: 1 };
    let mut watching: Option<Watching> = None;
    for _ in 0..REQUESTS {
        if requests.one_in(12) {
            let watch = requests.watch();
            if watching.is_none() {
                // etcd answers no request for progress on a stream without watches.
                let mut open = client.watch();
                open.create(WatchCreateRequest { key: Bytes::from_static(KEYS[0]), ..WatchCreateRequest::default() })
                    .await;
                watching = Some(open);
            }
            let open = watching.as_mut().expect("it was opened");
            open.send_create(watch).await;
            settled(open).await;
        }
        requests.send(&client).await;
        if requests.one_in(10)
            && let Some(open) = &mut watching
        {
            settled(open).await;
        }
    }
}

/// Receives all that the watches are due: in which order etcd cancels one and creates another is a matter of time.
async fn settled(watching: &mut Watching) {
    watching.all_created().await;
    watching.progress().await;
    watching.controls();
}

/// Returns the number in an environment variable.
fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

#[tokio::test]
async fn random_requests_are_answered_alike() {
    let first = number("GITCD_DIFFERENTIAL_SEED").unwrap_or_else(|| rand::random::<u32>().into());
    for seed in first..first + number("GITCD_DIFFERENTIAL_CASES").unwrap_or(8) {
        eprintln!("GITCD_DIFFERENTIAL_SEED={seed} GITCD_DIFFERENTIAL_CASES=1");
        same(async |client| case(client, seed).await).await;
    }
}
