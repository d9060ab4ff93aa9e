//! `/status` and the metrics of remotes.

use std::path::Path;

use gitcd::pull::status::Condition;
use gitcd::status::{Branch, Status};

use crate::support::build::put;
use crate::support::{DATA, Kind, Launch, Repository, Server, eventually};
use crate::work::Work;

pub(crate) fn object(name: &str, tea: &str) -> (String, String) {
    let metadata = format!(r#""metadata":{{"name":"{name}","namespace":"shop","uid":"{name}"}}"#);
    let value = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1",{metadata},"data":{{"tea":"{tea}"}}}}"#) + "\n";
    (format!("/registry/configmaps/shop/{name}"), value)
}

pub(crate) async fn status(server: &Server) -> Branch {
    let page = server.page("/status").await;
    let status: Status = serde_json::from_str(&page).unwrap_or_else(|error| panic!("{error}: {page}"));
    let [branch] = <[Branch; 1]>::try_from(status.branches).expect("a port serves one branch");
    branch
}

pub(crate) async fn write(server: &Server, name: &str, tea: &str) {
    let (key, value) = object(name, tea);
    server.client().await.put(put(&key, &value)).await.ok();
}

/// Starts a server whose branch follows `other` as the remote `desk`.
pub(crate) async fn follower(folder: &Path, other: &Path) -> Server {
    let repository = Repository::init(&folder.join("repo.git"));
    repository.git(&["remote", "add", "desk", &other.display().to_string()]);
    let launch = Launch::new(Kind::Gitcd).folder(folder).argument("--remote-names=default=desk");
    launch.argument("--pull-ticker-duration=1s").start().await
}

#[tokio::test]
async fn a_branch_and_its_remote_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let desk = Server::start(Kind::Gitcd).await;
    let server = follower(folder.path(), desk.repository().path()).await;
    write(&desk, "prices", "3").await;
    write(&server, "places", "1").await;
    let branch = eventually("the merge", async || {
        let branch = status(&server).await;
        let remote = &branch.remotes[0];
        let theirs = desk.repository().reference(DATA);
        let is_done =
            remote.known.merges > 0 && remote.known.seen == Some(theirs.clone()) && remote.lag_commits == Some(0);
        let is_synced = remote.known.condition == Condition::Synced && remote.known.merged == Some(theirs);
        (is_done && is_synced && branch.commit_lag_revisions == 0 && branch.revision == 3).then_some(branch)
    })
    .await;
    assert_eq!((&*branch.name, &*branch.reference, &*branch.role), ("default", DATA, "writer"));
    assert_eq!(branch.head, server.repository().reference(DATA));
    assert_eq!((branch.committed_revision, branch.compact_revision, branch.keys), (3, 0, 2));
    let remote = &branch.remotes[0];
    assert_eq!((&*remote.name, &*remote.reference), ("desk", DATA));
    assert_eq!((remote.lag_more, remote.lag_seconds, remote.known.failures), (false, Some(0), 0));
    assert!(remote.known.fetched_bytes > 0 && remote.known.synced_at >= remote.known.merged_at);
    let figures = server.page("/metrics").await;
    let figure = |name: &str| {
        let start = format!("gitcd_remote_{name}{{remote=\"desk\"}} ");
        let line = figures.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("no metric {start}: {figures}")).parse::<f64>().expect("a metric is a number")
    };
    assert!(figure("merges_total") >= 1.0 && figure("fetched_bytes_total") > 0.0);
    assert!(figure("last_success_timestamp_seconds") >= remote.known.synced_at.unwrap_or_default() as f64);
    for name in ["lag_commits", "lag_seconds", "rejected_files", "failures", "conflicts_total", "pushed_bytes_total"] {
        assert!(figure(name).abs() < f64::EPSILON, "{name} is {}", figure(name));
    }
}

#[tokio::test]
async fn commits_that_are_not_merged_yet_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let desk = Server::start(Kind::Gitcd).await;
    let server = follower(folder.path(), desk.repository().path()).await;
    eventually("the first exchange", async || {
        let remote = &status(&server).await.remotes[0];
        (remote.known.condition == Condition::Synced && remote.lag_commits == Some(0)).then_some(())
    })
    .await;
    // A locked reference blocks commits, so no merge completes.
    let lock = server.repository().path().join("refs/heads/main.lock");
    std::fs::write(&lock, "").unwrap();
    write(&desk, "prices", "3").await;
    let branch = eventually("a lag", async || {
        let branch = status(&server).await;
        (branch.remotes[0].lag_commits == Some(1)).then_some(branch)
    })
    .await;
    assert!(!branch.remotes[0].lag_more && branch.remotes[0].lag_seconds.is_some());
    let figures = server.page("/metrics").await;
    assert!(figures.contains("gitcd_remote_lag_commits{remote=\"desk\"} 1.0"), "{figures}");
    let behind = eventually("a merge that is not committed", async || {
        let branch = status(&server).await;
        (branch.commit_lag_revisions > 0).then_some(branch)
    })
    .await;
    assert!(behind.revision > behind.committed_revision && behind.commit_lag_seconds > 0.0);
    std::fs::remove_file(&lock).unwrap();
    eventually("no lag", async || {
        let branch = status(&server).await;
        (branch.remotes[0].lag_commits == Some(0) && branch.commit_lag_revisions == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn files_of_people_that_do_not_enter_are_listed_for_the_branch() {
    let server = Server::start(Kind::Gitcd).await;
    write(&server, "prices", "3").await;
    let repository = server.repository();
    eventually("the commit", async || (status(&server).await.commit_lag_revisions == 0).then_some(())).await;
    let work = Work::clone(repository.path());
    work.write("configmaps/shop/broken", "{\"kind\":\n");
    work.edit("configmaps/shop/prices", "\"3\"", "\"4\"");
    work.commit("by hand");
    work.git(&["push", "-q", "origin", "HEAD:main"]);
    let branch = eventually("the rejection", async || {
        let branch = status(&server).await;
        (!branch.rejected.is_empty()).then_some(branch)
    })
    .await;
    assert!(branch.rejected.contains_key("configmaps/shop/broken"), "{:?}", branch.rejected);
    assert!(branch.remotes.is_empty() && branch.merges == 1, "{branch:?}");
    assert!(server.page("/metrics").await.contains("gitcd_rejected_files 1.0"));
}
