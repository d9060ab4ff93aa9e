//! Repositories that share objects or history with one that is cut.

use super::*;

#[tokio::test]
async fn an_archive_that_borrows_objects_is_refused() {
    let mut store = filled().await;
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

fn forked(repository: &Path, words: &[&str], folder: &Path) -> Repository {
    gitcd_json(repository, &[&["fork", "--json"], words, &[folder.to_str().expect("the path is UTF-8")]].concat());
    Repository::at(folder)
}

#[tokio::test]
async fn forks_keep_what_they_need_when_their_origin_is_cut() {
    let mut store = filled().await;
    store.server.terminate().await;
    let repository = store.server.repository();
    let folder = tempfile::tempdir().unwrap();
    let [early, second, late] = ["early.git", "second.git", "late.git"].map(|name| folder.path().join(name));
    let revision = store.written.keys().nth(20).expect("there are 60");
    let early = forked(repository.path(), &[&format!("--at={revision}")], &early);
    let second = forked(early.path(), &[], &second);
    let all = logged(early.path(), KEYS[0]);
    let made = retain(repository.path(), &["--keep-commits=5", "--no-archive", "--prune=now"]);
    assert!(made["revision"].as_i64().unwrap() > *revision && made["prunedObjects"].as_u64() > Some(0), "{made:#}");
    // One of a cut history ends where that does.
    let late = forked(repository.path(), &[], &late);
    let shallow = |of: &Repository| std::fs::read(of.path().join("shallow")).unwrap();
    assert_eq!(shallow(&late), shallow(&repository));
    drop(store);
    for fork in [&early, &second, &late] {
        fork.fsck();
        fork.verify();
    }
    assert_eq!(logged(early.path(), KEYS[0]), all);
    assert_eq!(logged(second.path(), KEYS[0]), all);
    // It can be cut, too.
    retain(second.path(), &["--keep=now", "--no-archive", "--prune=now"]);
    second.fsck();
    second.verify();
    assert_eq!(logged(early.path(), KEYS[0]), all);
}

#[tokio::test]
async fn nothing_is_deleted_that_a_gitcd_reads_for_another_repository() {
    let mut store = filled().await;
    store.server.terminate().await;
    let repository = store.server.repository();
    let folder = tempfile::tempdir().unwrap();
    let fork = forked(repository.path(), &["--shared"], &folder.path().join("repo.git"));
    let retained = |of: &Path| gitcd(of, &["retain", "--keep-commits=5", "--no-archive", "--prune=now"]);
    let said = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = retained(fork.path());
    assert!(!refused.status.success() && said(&refused).contains("repack -a -d"), "{refused:?}");
    let mut served = Launch::new(Kind::Gitcd).folder(folder.path()).argument("--key-prefixes=/registry").start().await;
    let refused = retained(repository.path());
    assert!(!refused.status.success() && said(&refused).contains("for another repository"), "{refused:?}");
    assert!(!repository.path().join("shallow").exists(), "nothing was cut");
    served.terminate().await;
    // What the message advises.
    fork.git(&["repack", "-a", "-d", "-q"]);
    std::fs::remove_file(fork.path().join("objects/info/alternates")).unwrap();
    let past = format!("--at={}", store.written.keys().nth(20).expect("there are 60"));
    let mut past = Launch::new(Kind::Gitcd).folder(store.server.folder()).argument(&past).start().await;
    let refused = retained(repository.path());
    assert!(!refused.status.success() && said(&refused).contains("for another repository"), "{refused:?}");
    past.terminate().await;
    assert!(retained(repository.path()).status.success());
    for repository in [&fork, &repository] {
        repository.fsck();
        repository.verify();
    }
}

/// Runs gitcd where the file system of the repository is mounted read only, but nowhere else; nothing if that is not permitted.
fn where_it_is_read_only(repository: &Path, words: &[&str]) -> Option<std::process::Output> {
    const NOT_PERMITTED: i32 = 77;
    let script =
        format!(r#"mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit {NOT_PERMITTED}; shift; exec "$@""#);
    let run = |flags: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(flags).args(["sh", "-c", &script, "sh"]).arg(repository).arg(env!("CARGO_BIN_EXE_gitcd"));
        command.args(words).env("GITCD_REPO", repository).env("LC_ALL", "C").output().ok()
    };
    let mut said = "unshare cannot be run".to_owned();
    for flags in [&["--mount"][..], &["--user", "--map-root-user", "--mount"]] {
        let Some(output) = run(flags) else { continue };
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() != Some(NOT_PERMITTED) && !error.starts_with("unshare:") {
            return Some(output);
        }
        said = error;
    }
    println!("skipped: no read-only mount can be made here: {said}");
    None
}

/// There, it cannot be linked to another folder.
#[tokio::test]
async fn what_is_mounted_read_only_can_be_forked() {
    let mut store = Store::start(&[]).await;
    put(&mut store, KEYS[0]).await;
    store.committed().await;
    store.server.terminate().await;
    let repository = store.server.repository();
    let folder = tempfile::tempdir().unwrap();
    for (name, flags) in [("linked.git", &[][..]), ("shared.git", &["--shared"])] {
        let path = folder.path().join(name);
        let words = [&["fork", "--json"], flags, &[path.to_str().unwrap()]].concat();
        let Some(forked) = where_it_is_read_only(repository.path(), &words) else { return };
        assert!(forked.status.success(), "{forked:?}");
        Repository::at(&path).fsck();
        Repository::at(&path).verify();
    }
}

/// A branch that was away during the cut gets an explicit error, in both directions, and no deleted key comes back.
#[tokio::test]
async fn a_branch_that_lags_behind_the_cut_gets_an_explicit_error() {
    let mut store = filled().await;
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
    fill(&mut store, 20).await;
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
    store.server.terminate().await;
    let pulled = gitcd(repository.path(), &PULL);
    assert!(String::from_utf8_lossy(&pulled.stderr).contains("history was cut"), "{pulled:?}");
    assert_eq!(repository.reference(DATA), before);
    assert!(!repository.files(DATA).contains_key("configmaps/n/gone"));
    repository.fsck();
}

/// `shallow` is readable like the other files of the repository, and no commit-graph leads beyond it.
#[tokio::test]
async fn the_boundary_is_readable_and_the_commit_graph_is_gone() {
    use std::os::unix::fs::MetadataExt as _;
    let mut store = filled().await;
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
