//! Rejected files stay listed until a corrected version, or their deletion, is merged.

use std::path::Path;

use gitcd::pull::status::Condition;
use gitcd::status::Branch;

use crate::page::{follower, object, status, write};
use crate::support::{DATA, Kind, Launch, Server, eventually, free_port};
use crate::work::Work;
use crate::{gitcd, text};

const BROKEN: &str = "configmaps/shop/broken";

/// Creates a bare repository without a server, and a clone; both have one commit.
fn upstream(folder: &Path) -> (std::path::PathBuf, Work) {
    let (path, work) = (folder.join("up.git"), Work::new());
    let (_, value) = object("prices", "3");
    work.write("configmaps/shop/prices", &value);
    work.commit("prices");
    let url = path.display().to_string();
    work.git(&["clone", "-q", "--bare", ".", &url]);
    work.git(&["remote", "add", "origin", &url]);
    (path, work)
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    since.expect("the clock is after 1970").as_secs()
}

async fn wait_for_branch(server: &Server, what: &str, is_so: impl Fn(&Branch) -> bool) -> Branch {
    eventually(what, async || Some(status(server).await).filter(&is_so)).await
}

#[tokio::test]
async fn a_file_of_a_remote_is_listed_until_it_is_corrected() {
    let folder = tempfile::tempdir().unwrap();
    let (path, work) = upstream(folder.path());
    let server = follower(folder.path(), &path).await;
    work.write(BROKEN, "{\"kind\":\n");
    std::os::unix::fs::symlink("broken", work.path("link")).unwrap();
    work.commit("broken");
    work.git(&["push", "-q", "origin", "HEAD:main"]);
    let broken = work.git(&["rev-parse", "HEAD"]).trim().to_owned();
    let branch = wait_for_branch(&server, "the rejection", |branch| branch.remotes[0].known.rejected.len() == 2).await;
    let known = &branch.remotes[0].known;
    for path in [BROKEN, "link"] {
        let source = &known.rejected_from[path];
        assert_eq!((&*source.reference, &source.commit), (DATA, &broken), "{path}");
        assert!(source.time.abs_diff(now()) < 60, "{path}: {source:?}");
    }
    let table = gitcd(&["status", &format!("--endpoint=http://{}", server.address())]);
    let line = format!("    rejected {BROKEN}: line 2: it is not well-formed JSON (commit {}, ", &broken[..10]);
    assert!(text(&table.stdout).contains(&line), "{table:?}");

    // Another file is merged; the two rejected ones stay listed.
    let (_, value) = object("places", "1");
    work.write("configmaps/shop/places", &value);
    work.commit("places");
    work.git(&["push", "-q", "origin", "HEAD:main"]);
    let last = work.git(&["rev-parse", "HEAD"]).trim().to_owned();
    let is_merged = |branch: &Branch| branch.remotes[0].known.merged.as_ref() == Some(&last);
    let branch = wait_for_branch(&server, "the other file", is_merged).await;
    let known = &branch.remotes[0].known;
    assert_eq!(known.rejected.len(), 2, "{known:?}");
    assert_eq!(known.rejected_from[BROKEN].commit, broken, "the first commit that was rejected must be kept");
    assert!(server.page("/metrics").await.contains("gitcd_remote_rejected_files{remote=\"desk\"} 2.0"));

    let (_, value) = object("broken", "2");
    work.write(BROKEN, &value);
    work.git(&["rm", "-qf", "link"]);
    work.commit("corrected");
    work.git(&["push", "-q", "origin", "HEAD:main"]);
    let branch =
        wait_for_branch(&server, "nothing rejected", |branch| branch.remotes[0].known.rejected.is_empty()).await;
    assert!(branch.remotes[0].known.rejected_from.is_empty());
    assert_eq!(branch.remotes[0].known.condition, Condition::Synced);
}

#[tokio::test]
async fn a_file_that_stays_broken_makes_no_merges() {
    let folder = tempfile::tempdir().unwrap();
    let (path, work) = upstream(folder.path());
    let server = follower(folder.path(), &path).await;
    work.write(BROKEN, "{\"kind\":\n");
    work.commit("broken");
    work.git(&["push", "-q", "origin", "HEAD:main"]);
    let is_rejected =
        |branch: &Branch| !branch.remotes[0].known.rejected.is_empty() && branch.commit_lag_revisions == 0;
    let first = wait_for_branch(&server, "the rejection", is_rejected).await;
    // Two further pulls.
    for _ in 0..2 {
        let last = now();
        wait_for_branch(&server, "another pull", |branch| branch.remotes[0].known.synced_at > Some(last)).await;
    }
    let later = status(&server).await;
    assert_eq!((later.remotes[0].known.merges, &later.head), (first.remotes[0].known.merges, &first.head));
    assert!(later.remotes[0].known.rejected.contains_key(BROKEN));
}

#[tokio::test]
async fn files_of_people_are_listed_until_a_push_is_taken() {
    let port = free_port();
    let server = Launch::new(Kind::Gitcd).argument(format!("--host-listen-urls=http://127.0.0.1:{port}")).start().await;
    write(&server, "prices", "3").await;
    wait_for_branch(&server, "the commit", |branch| branch.commit_lag_revisions == 0).await;
    let url = format!("http://127.0.0.1:{port}/repo.git");
    let work = Work::clone(Path::new(&url));
    work.write(BROKEN, "{\"kind\":\n");
    work.commit("broken");
    let broken = work.git(&["rev-parse", "HEAD"]).trim().to_owned();
    let refused = work.run(&["push", "-q", "origin", "HEAD:refs/for/main"], "");
    assert!(!refused.status.success(), "{refused:?}");
    let branch = status(&server).await;
    assert_eq!(branch.rejected_from[BROKEN].commit, broken);
    assert_eq!(branch.rejected.keys().collect::<Vec<_>>(), [BROKEN]);
    let (_, value) = object("broken", "2");
    work.write(BROKEN, &value);
    work.git(&["add", "-A"]);
    work.git(&["commit", "-q", "--amend", "-m", "corrected"]);
    work.git(&["push", "-q", "origin", "HEAD:main"]);
    let branch = status(&server).await;
    assert!(branch.rejected.is_empty() && branch.rejected_from.is_empty(), "{branch:?}");
    assert!(server.page("/metrics").await.contains("gitcd_rejected_files 0.0"));
}

#[tokio::test]
async fn a_push_to_be_tried_is_refused_while_no_kube_apiserver_answers_and_what_is_on_the_branch_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let unused = free_port();
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'http://127.0.0.1:{unused}'}}}}]\nusers: [{{name: u, user: {{token: hunter2}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let port = free_port();
    let server = Launch::new(Kind::Gitcd)
        .argument(format!("--host-listen-urls=http://127.0.0.1:{port}"))
        .argument(format!("--kubeconfigs={}", kubeconfig.display()))
        .start()
        .await;
    write(&server, "prices", "3").await;
    wait_for_branch(&server, "the commit", |branch| branch.commit_lag_revisions == 0).await;
    let work = Work::clone(Path::new(&format!("http://127.0.0.1:{port}/repo.git")));
    let (_, value) = object("places", "1");
    work.write("configmaps/shop/places", &value);
    work.commit("places");
    let refused = work.run(&["push", "-q", "origin", "HEAD:refs/for/main"], "");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    let reason = format!("cannot dry-run the push at the kube-apiserver of {:?}: ", kubeconfig.display().to_string());
    assert!(!refused.status.success() && said.contains(&reason) && !said.contains("hunter2"), "{said}");
    // A commit without changed files needs no dry run.
    work.git(&["push", "-q", "origin", "HEAD^:refs/for/main"]);

    let repository = server.repository().path().display().to_string();
    work.git(&["push", "-q", &repository, "HEAD:main"]);
    let commit = work.git(&["rev-parse", "HEAD"]).trim().to_owned();
    let is_taken = async || {
        let found = server.repository().git(&["branch", "--contains", &commit, "main"]);
        let is_merged = status(&server).await.revision > 2;
        (is_merged && !found.is_empty()).then_some(())
    };
    eventually("the commit on the branch to be merged", is_taken).await;
}
