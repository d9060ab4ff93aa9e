//! Repositories that share objects or history with one that is cut.

use super::*;

#[tokio::test]
async fn an_archive_that_borrows_objects_is_refused() {
    let mut store = filled(40).await;
    store.server.terminate().await;
    let repository = store.server.repository();
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive.git");
    Repository::init(&archive);
    let objects = repository.path().join("objects");
    std::fs::write(archive.join("objects/info/alternates"), format!("{}\n", objects.display())).unwrap();
    let itself = format!("--archive={}", repository.path().display());
    for (to, words) in
        [(format!("--archive={}", archive.display()), "alternates"), (itself, "is the repository itself")]
    {
        let output = gitcd(repository.path(), &["retain", "--keep-commits=5", &to, "--prune=now"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{said}");
    }
    assert!(!repository.path().join("shallow").exists());
    repository.fsck();
}

#[tokio::test]
async fn a_fork_keeps_what_it_starts_from_until_it_is_removed() {
    let mut store = filled(60).await;
    store.server.terminate().await;
    let repository = store.server.repository();
    let folder = tempfile::tempdir().unwrap();
    let early = folder.path().join("early.git");
    let revision = store.written.keys().nth(20).expect("there are 60").to_string();
    let at = format!("--at={revision}");
    gitcd_json(repository.path(), &["fork", "--json", &at, early.to_str().unwrap()]);
    let made = retain(repository.path(), &["--keep-commits=5", "--no-archive", "--prune=now"]);
    assert!(made["keptFor"].as_str().is_some_and(|what| what.starts_with("refs/gitcd/forks/")), "{made:#}");
    assert!(made["revision"].as_i64().unwrap() <= revision.parse().unwrap(), "{made:#}");
    assert_eq!(made["forks"].as_array().unwrap().len(), 1);
    // The fork ends where its origin does, and is whole.
    let fork = Repository::at(&early);
    fork.fsck();
    fork.verify();
    assert_eq!(
        std::fs::read(early.join("shallow")).unwrap(),
        std::fs::read(repository.path().join("shallow")).unwrap()
    );
    let refused = gitcd(&early, &["retain", "--keep=now", "--no-archive"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("shares the objects"), "{refused:?}");
    std::fs::remove_dir_all(&early).unwrap();
    let made = retain(repository.path(), &["--keep-commits=5", "--no-archive", "--prune=now"]);
    assert!(made["revision"].as_i64().unwrap() > revision.parse().unwrap(), "{made:#}");
    assert_eq!(repository.git(&["for-each-ref", "refs/gitcd/forks"]), "");
    // A fork of a cut history.
    let late = folder.path().join("late.git");
    gitcd_json(repository.path(), &["fork", "--json", late.to_str().unwrap()]);
    Repository::at(&late).fsck();
    Repository::at(&late).verify();
    repository.fsck();
    repository.verify();
}

/// A branch that was away during the cut gets an explicit error, in both directions, and no deleted key comes back.
#[tokio::test]
async fn a_branch_that_lags_behind_the_cut_gets_an_explicit_error() {
    let mut store = filled(40).await;
    store.put("/registry/configmaps/n/gone", "{\"kind\":\"K\"}\n").await;
    let repository = store.committed().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lagging");
    std::fs::create_dir(&path).unwrap();
    let lagging = path.join("repo.git");
    let cloned = Command::new("git").args(["clone", "-q", "--bare"]).arg(repository.path()).arg(&lagging).status();
    assert!(cloned.expect("git is installed").success());
    let lagging = Repository::at(&lagging);
    lagging.git(&["fetch", "-q", "origin", &format!("+{METADATA}:{METADATA}")]);
    lagging.git(&["config", "remote.origin.url", &repository.path().display().to_string()]);
    store.delete("/registry/configmaps/n/gone").await;
    fill(&mut store, 60).await;
    store.server.terminate().await;
    retain(repository.path(), &["--keep-commits=5", "--no-archive", "--prune=now"]);
    store.server.restart().await;
    store.client = store.server.client().await;
    // A commit of its own, so that it has diverged.
    let tree = lagging.git(&["rev-parse", &format!("{DATA}^{{tree}}")]);
    let own = lagging.git(&["commit-tree", tree.trim(), "-p", DATA, "-m", "its own"]);
    lagging.git(&["update-ref", DATA, own.trim()]);
    let follower = Launch::new(Kind::Gitcd).folder(&path).argument("--key-prefixes=/registry");
    let follower = follower.argument("--remote-names=origin").argument("--pull-ticker-duration=100ms").start().await;
    eventually("the error of the follower", async || {
        follower.page("/status").await.contains("history was cut").then_some(())
    })
    .await;
    drop(follower);
    // From the other side: its commits are not merged.
    let before = repository.reference(DATA);
    repository.git(&["remote", "add", "lagging", &lagging.path().display().to_string()]);
    let pulled = gitcd(repository.path(), &["pull", "lagging"]);
    assert!(!pulled.status.success(), "{pulled:?}");
    check_state(&store).await;
    assert_eq!(repository.reference(DATA), before);
    assert!(!repository.files(DATA).contains_key("configmaps/n/gone"));
    repository.fsck();
}

/// `shallow` is readable like the other files of the repository, and no commit-graph leads beyond it.
#[tokio::test]
async fn the_boundary_is_readable_and_the_commit_graph_is_gone() {
    use std::os::unix::fs::MetadataExt as _;
    let mut store = filled(40).await;
    store.server.terminate().await;
    let repository = store.server.repository();
    repository.git(&["commit-graph", "write", "--reachable"]);
    let graph = repository.path().join("objects/info/commit-graph");
    assert!(graph.exists());
    let removed = repository.git(&["rev-list", "--max-parents=0", DATA, METADATA]);
    retain(repository.path(), &["--keep-commits=5", "--no-archive", "--prune=now"]);
    assert!(!graph.exists());
    let mode = |name: &str| std::fs::metadata(repository.path().join(name)).unwrap().mode() & 0o777;
    assert_eq!(mode("shallow"), mode("HEAD"));
    for oid in removed.lines() {
        assert!(!repository.run(&["cat-file", "-e", oid]).status.success(), "{oid} is still there");
    }
}
