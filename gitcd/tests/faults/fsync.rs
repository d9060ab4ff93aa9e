//! A disk that fails to make writes durable.
//!
//! No file system here fails an fsync on demand, so a preloaded library intercepts gitcd's fsync calls.

use std::path::{Path, PathBuf};
use std::process::Command;

use gitcd::proto::etcdserverpb::{LeaseLeasesRequest, LeaseLeasesResponse};
use tempfile::TempDir;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::{explains, holds, key, value, write};
use crate::support::build::{get, grant, put, time_to_live};
use crate::support::{Kind, Launch, Server, eventually};

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The order in the file $SICK_DISK for this file: 'f'ail or 'h'old fsyncs of files whose path contains the rest of its line. */
static int ordered(int fd) {
    char line[256] = "", link[64], path[4096] = "";
    FILE *order = fopen(getenv("SICK_DISK"), "r");
    if (!order) return 0;
    char *read = fgets(line, sizeof line, order);
    fclose(order);
    if (!read || !line[0] || !line[1]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0) return 0;
    return strstr(path, line + 1) ? line[0] : 0;
}

static int synced(const char *name, int fd) {
    char held[4096];
    int order = ordered(fd);
    if (order == 'h') {
        snprintf(held, sizeof held, "%s.held", getenv("SICK_DISK"));
        close(open(held, O_CREAT | O_WRONLY, 0600));
        while ((order = ordered(fd)) == 'h') usleep(1000);
        unlink(held);
    }
    if (order == 'f') { errno = EIO; return -1; }
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return real(fd);
}

int fsync(int fd) { return synced("fsync", fd); }
int fdatasync(int fd) { return synced("fdatasync", fd); }
"#;

/// A server whose fsyncs fail or hang on demand.
struct Sick {
    server: Server,
    order: PathBuf,
    _folder: TempDir,
}

impl Sick {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let library = compile(folder.path());
        let order = folder.path().join("order");
        let environment =
            ["env".to_owned(), format!("LD_PRELOAD={}", library.display()), format!("SICK_DISK={}", order.display())];
        let environment: Vec<_> = environment.iter().map(String::as_str).collect();
        let server = Launch::new(Kind::Gitcd).wrapper(&environment).start().await;
        Self { server, order, _folder: folder }
    }

    /// From now on, fsync fails for files whose path contains `text`, also if it was held so far.
    fn fail(&self, text: &str) {
        self.order(&format!("f{text}"));
    }

    /// From now on, fsync hangs for files whose path contains `text`.
    fn hold(&self, text: &str) {
        self.order(&format!("h{text}"));
    }

    /// Waits until an fsync hangs.
    async fn held(&self) {
        let held = self.order.with_extension("held");
        eventually("an fsync", async || held.exists().then_some(())).await;
    }

    fn heal(&self) {
        std::fs::remove_file(&self.order).expect("a fault was set");
    }

    fn order(&self, order: &str) {
        // Renamed into place: the server may read it at any moment.
        let new = self.order.with_extension("new");
        std::fs::write(&new, order).expect("the temporary folder is writable");
        std::fs::rename(&new, &self.order).expect("the temporary folder is writable");
    }
}

/// Compiles the library. Rust itself needs a C compiler to link, so there is one.
fn compile(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("fsync.c"), folder.join("fsync.so"));
    std::fs::write(&source, SOURCE).expect("the temporary folder is writable");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(compiler)
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .output()
        .expect("a C compiler is installed");
    assert!(output.status.success(), "{output:?}");
    library
}

#[tokio::test]
async fn after_a_failed_fsync_of_the_journal_writes_are_refused_until_a_restart() {
    let mut sick = Sick::start().await;
    let client = sick.server.client().await;
    write(&client, 0..10).await;

    sick.fail("/journal/");
    let refused = client.put(put(&key(10), &value(10))).await.result();
    assert!(refused.is_err(), "the write was not durable, but got {refused:?}");
    let read = client.range(get(&key(10))).await.ok();
    assert_eq!(
        (read.count, read.header.unwrap().revision),
        (0, 11),
        "a write must not be visible before it is durable"
    );

    // The kernel reports an error once: the next fsync would succeed without having written the data.
    sick.heal();
    let refused = client.put(put("/registry/tests/other", "1")).await.result();
    assert!(refused.is_err(), "a disk whose fsync failed must not be trusted again, but got {refused:?}");
    holds(&client, 0..10).await;

    sick.server.kill();
    sick.server.restart().await;
    let client = sick.server.client().await;
    holds(&client, 0..10).await;
    let other = client.range(get("/registry/tests/other")).await.ok();
    assert_eq!(other.count, 0, "refused before anything was written");
    client.put(put("/registry/tests/other", "2")).await.ok();
    sick.server.repository().fsck();
}

#[tokio::test]
async fn a_failed_fsync_of_a_pack_moves_no_reference_and_loses_nothing() {
    let mut sick = Sick::start().await;
    let client = sick.server.client().await;
    write(&client, 0..10).await;
    let repository = sick.server.repository();
    eventually("the first commits", async || (repository.committed_revision() == 11).then_some(())).await;
    let committed = repository.reference(crate::support::METADATA);

    sick.fail("/objects/");
    // Acknowledged writes are safe in the journal: further writes may succeed or be refused, but must not be lost.
    let mut acknowledged = Vec::new();
    for number in 10..60 {
        if let Ok(answer) = client.put(put(&key(number), &value(number))).await.result() {
            acknowledged.push((number, answer.header.unwrap().revision));
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(
        repository.reference(crate::support::METADATA),
        committed,
        "no commit may refer to a pack that is not durable"
    );
    repository.fsck();

    sick.server.kill();
    sick.heal();
    sick.server.restart().await;
    let client = sick.server.client().await;
    holds(&client, 0..10).await;
    for (number, revision) in acknowledged {
        let pair = client.range(get(&key(number))).await.ok().kvs.pop();
        assert_eq!(pair.unwrap_or_else(|| panic!("{} is lost", key(number))).mod_revision, revision);
    }
    sick.server.terminate().await;
    repository.fsck();
}

#[tokio::test]
async fn a_start_whose_fsync_fails_is_refused() {
    let mut sick = Sick::start().await;
    write(&sick.server.client().await, 0..10).await;
    sick.server.kill();
    sick.fail("/journal");
    explains(&sick.server.restart_in_vain().await, &["journal"]);
    sick.heal();
    super::recovers(&mut sick.server, 0..10).await;
}

#[tokio::test]
async fn a_lease_is_visible_only_once_it_is_durable() {
    let sick = Sick::start().await;
    let client = sick.server.client().await;
    client.lease_grant(grant(6, 600)).await.ok();

    sick.hold("/journal/");
    let (granting, asking) = (sick.server.client().await, sick.server.client().await);
    let seen = async {
        sick.held().await;
        tokio::join!(
            asking.lease_leases(LeaseLeasesRequest {}),
            asking.lease_time_to_live(time_to_live(7)),
            asking.keep_alive(7),
            async {
                // Reads of keys do not wait for the disk.
                client.range(get("/registry/none")).await.ok();
                sick.fail("/journal/");
            }
        )
    };
    let (granted, (leases, remaining, kept, ())) = tokio::join!(granting.lease_grant(grant(7, 600)), seen);
    assert!(granted.result().is_err(), "the grant was not durable");
    assert_eq!(ids(leases.ok()), [6]);
    assert_eq!(remaining.ok().ttl, -1);
    assert_eq!(kept.ok().ttl, 0);

    assert_eq!(
        ids(client.lease_leases(LeaseLeasesRequest {}).await.ok()),
        [6],
        "the failed grant must not appear later"
    );
    assert_eq!(client.lease_time_to_live(time_to_live(7)).await.ok().ttl, -1);
}

fn ids(answer: LeaseLeasesResponse) -> Vec<i64> {
    answer.leases.into_iter().map(|lease| lease.id).collect()
}

#[tokio::test]
async fn the_health_service_says_whether_writes_are_taken() {
    let mut sick = Sick::start().await;
    let client = sick.server.client().await;
    let mut health = HealthClient::new(sick.server.channel().await);
    let request = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let answer = health.check(request("")).await.expect("the health service is registered").into_inner();
    assert_eq!(answer.status(), ServingStatus::Serving);
    // As in etcd, only the whole server is known.
    for unknown in ["etcdserverpb.KV", "none"] {
        assert_eq!(health.check(request(unknown)).await.unwrap_err().code(), tonic::Code::NotFound, "{unknown:?}");
    }
    let mut watched = health.watch(request("")).await.expect("the health service is registered").into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::Serving);

    sick.fail("/journal/");
    assert!(client.put(put(&key(0), &value(0))).await.result().is_err());
    let answer = health.check(request("")).await.expect("the health service is registered").into_inner();
    assert_eq!(answer.status(), ServingStatus::NotServing);
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);

    sick.heal();
    sick.server.kill();
    sick.server.restart().await;
    let mut health = HealthClient::new(sick.server.channel().await);
    assert_eq!(health.check(request("")).await.unwrap().into_inner().status(), ServingStatus::Serving);
}
