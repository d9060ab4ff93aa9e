//! Automatic compaction.

use tonic::Code;

use gitcd::proto::etcdserverpb::RangeRequest;

use super::support::build::{get, put};
use super::support::{DATA, Kind, Launch, eventually};

#[tokio::test]
async fn history_older_than_the_retention_is_compacted_and_stays_in_git() {
    let server = Launch::new(Kind::under_test()).argument("--auto-compaction-retention=1s").start().await;
    let client = server.client().await;
    for value in ["1", "2", "3"] {
        client.put(put("/registry/a", value)).await.ok();
    }
    let old = RangeRequest { revision: 2, ..get("/registry/a") };
    let refused =
        eventually("the compaction of revision 2", async || client.range(old.clone()).await.result().err()).await;
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted")
    );
    assert_eq!(client.range(get("/registry/a")).await.ok().kvs[0].value, "3");
    if server.kind() == Kind::Gitcd {
        eventually("the commits", async || (server.repository().committed_revision() >= 4).then_some(())).await;
        let log = server.repository().git(&["log", "--format=%s", DATA, "--", "a"]);
        assert_eq!(log, "update a\nupdate a\ncreate a\n");
    }
}

#[tokio::test]
async fn a_retention_that_makes_no_sense_is_refused() {
    for arguments in [
        ["--auto-compaction-mode=revision", "--auto-compaction-retention=1h"],
        ["--auto-compaction-mode=revision", "--auto-compaction-retention=-1"],
        ["--auto-compaction-mode=periodic", "--auto-compaction-retention=soon"],
        ["--auto-compaction-mode=often", "--auto-compaction-retention=1"],
    ] {
        let launch = arguments.iter().fold(Launch::new(Kind::Gitcd), |launch, argument| launch.argument(*argument));
        let exit = launch.spawn().exit().await;
        assert!(!exit.status.success() && exit.output.contains("--auto-compaction-"), "{arguments:?}: {}", exit.output);
    }
}
