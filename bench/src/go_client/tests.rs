//! The Go client on a server in this process.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use gitcd::proto::etcdserverpb::RangeRequest;

use super::*;
use crate::bare_wire::BareServer;
use crate::client::{put, revision_in};
use crate::data::{KeySpace, stamp_of};
use crate::workload::{self, Load};

const LENGTH: Duration = Duration::from_millis(60);
/// Few enough for compactions in the test.
const COMPACT_EVERY: i64 = 4_000;

/// Builds the program; `None` without Go.
fn build() -> Option<GoProgram> {
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("skipped: Go is not installed, so the Go client cannot be built");
        return None;
    }
    let path = std::env::current_exe().unwrap().with_file_name(NAME);
    let mut build = Command::new("go");
    build.args(["build", "-buildvcs=false", "-o"]).arg(&path).arg(".");
    build.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/go"));
    build.envs([("GOFLAGS", "-mod=readonly"), ("GOWORK", "off"), ("CGO_ENABLED", "0")]);
    assert!(build.status().unwrap().success(), "bench/go does not build");
    Some(GoProgram::find(Some(&path)).unwrap())
}

struct Served {
    server: BareServer,
    client: Client,
    url: String,
    _folder: tempfile::TempDir,
}

async fn serve() -> Served {
    let folder = tempfile::tempdir().unwrap();
    let server = BareServer::start((Ipv4Addr::LOCALHOST, 0).into(), folder.path()).await.unwrap();
    let url = format!("http://{}", server.address());
    let client = Client::connect(&url, 4).await.unwrap();
    Served { server, client, url, _folder: folder }
}

impl Served {
    async fn fill(&self, space: KeySpace) {
        let puts = stream::iter(0..space.keys).map(|number| {
            let mut kv = self.client.kv(number as usize);
            async move {
                let done = kv.put(put(space.key(number), space.value(number, 1, number))).await.unwrap();
                assert!(revision_in(done.into_inner().header.as_ref()) > 1);
            }
        });
        puts.buffer_unordered(64).collect::<()>().await;
    }

    /// Checks that all values are those that the Rust client would have written.
    async fn check(&self, space: KeySpace) -> usize {
        let all = RangeRequest { key: space.prefix().into(), range_end: space.end(), ..RangeRequest::default() };
        let found = self.client.kv(0).range(all).await.unwrap().into_inner();
        for kv in &found.kvs {
            let number: u64 = std::str::from_utf8(&kv.key).unwrap().rsplit('-').next().unwrap().parse().unwrap();
            assert_eq!(kv.key, space.key(number));
            let object: serde_json::Value = serde_json::from_slice(&kv.value).unwrap();
            let generation = object["metadata"]["generation"].as_u64().unwrap();
            assert_eq!(kv.value, space.value(number, generation, stamp_of(&kv.value).unwrap()));
        }
        found.kvs.len()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_workload_runs_and_the_counts_are_those_of_the_server() {
    let Some(program) = build() else { return };
    let served = serve().await;
    let (compactor, next_new) = (Compactor::new(COMPACT_EVERY), AtomicU64::new(0));
    let mut filled = HashSet::new();
    // The whole ones differ from others only in that they are not cut into turns.
    for workload in workload::all().into_iter().filter(|one| !one.spec().whole) {
        let spec = workload.spec();
        if filled.insert(spec.keys.resource.plural) {
            served.fill(spec.keys).await;
        }
        let mut client = program.start(&served.url, &spec, 6, 2).unwrap();
        // A client works for several turns.
        for _ in 0..2 {
            let (new, issued) = (next_new.load(Ordering::Relaxed), compactor.issued());
            let before = served.client.revision().await.unwrap();
            let tally = client.turn(LENGTH, &next_new, &compactor, &served.client).await.unwrap();
            let compactions = (compactor.issued() - issued) as i64;
            let written = served.client.revision().await.unwrap() - before - compactions;
            let (name, operations) = (spec.name, tally.operations as i64);
            assert!(operations > 0, "{name}: {tally:?}");
            let created = (next_new.load(Ordering::Relaxed) - new) as i64;
            let expected = match spec.load {
                Load::Put | Load::Update => (operations, 0),
                Load::Create => (operations, operations),
                Load::Get | Load::Pages { .. } | Load::List => (0, 0),
                Load::Watch(watch) => (operations / (watch.streams * watch.watchers_per_stream) as i64, 0),
            };
            assert_eq!((written, created), expected, "{name}: {operations} operations");
            assert_eq!(tally.latency.len(), tally.operations, "{name}");
            assert!(tally.elapsed >= LENGTH / 2 && tally.latency.max() > 0, "{name}: {:?}", tally.elapsed);
            let longest = Duration::from_nanos(tally.latency.max());
            assert!(longest <= tally.elapsed.mul_f64(1.01), "{name}: {longest:?} of {:?}", tally.elapsed);
        }
        assert!(client.cpu().unwrap() > Duration::ZERO);
        if spec.unit != "pages" && spec.unit != "lists" {
            assert!(served.check(spec.keys).await >= spec.keys.keys as usize);
        }
    }
    assert!(compactor.issued() > 0);
    served.server.stop().await.unwrap();
}

#[tokio::test]
async fn a_failed_operation_is_reported_with_its_reason() {
    let Some(program) = build() else { return };
    let served = serve().await;
    let get = workload::all().into_iter().find(|one| one.spec().load == Load::Get).unwrap();
    let mut client = program.start(&served.url, &get.spec(), 1, 1).unwrap();
    let (compactor, next_new) = (Compactor::new(COMPACT_EVERY), AtomicU64::new(0));
    let error = client.turn(LENGTH, &next_new, &compactor, &served.client).await.unwrap_err().to_string();
    assert!(error.contains("the Go client failed: a get of /registry/deployments/"), "{error}");
    served.server.stop().await.unwrap();
}
