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

fn refused(repository: &Path, words: &[&str]) -> String {
    let output = gitcd(repository, &[&["retain", "--keep-commits=5", "--no-archive", "--prune=now"], words].concat());
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn nothing_is_cut_while_a_fork_or_a_fork_of_it_may_exist() {
    let mut store = filled().await;
    store.server.terminate().await;
    let repository = store.server.repository();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().canonicalize().unwrap();
    let [early, second, away] = ["early.git", "second.git", "away.git"].map(|name| at.join(name));
    let revision = store.written.keys().nth(20).expect("there are 60");
    forked(repository.path(), &[&format!("--at={revision}")], &early);
    forked(&early, &[], &second);
    let said = refused(repository.path(), &[]);
    for part in [early.to_str().unwrap(), second.to_str().unwrap(), "fork --independent", "--forget-fork"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let planned = retain(repository.path(), &["--keep-commits=5", "--no-archive", "--dry-run"]);
    assert_eq!(planned["forks"].as_array().unwrap().len(), 2);
    let said = refused(&early, &[]);
    assert!(said.contains("shares the objects") && said.contains("fork --independent"), "{said}");
    // The fork is away: it still protects what both need.
    std::fs::rename(&early, &away).unwrap();
    let said = refused(repository.path(), &[]);
    assert!(said.contains("No such file") && said.contains(second.to_str().unwrap()), "{said}");
    std::fs::rename(&away, &early).unwrap();
    let forgets = |path: &Path| format!("--forget-fork={}", path.display());
    let said = refused(repository.path(), &[&forgets(&early)]);
    assert!(said.contains("still shares"), "{said}");
    let listed = gitcd_json(repository.path(), &["retain", "--json", "--list-forks"]);
    let listed: Vec<&str> = listed["forks"].as_array().unwrap().iter().map(|fork| fork.as_str().unwrap()).collect();
    assert_eq!(listed, [second.to_str().unwrap(), early.to_str().unwrap()], "the last fork first");
    // The second one becomes independent, and the first one is removed.
    let refused_first = gitcd(repository.path(), &["fork", "--independent", early.to_str().unwrap()]);
    assert!(!refused_first.status.success(), "{refused_first:?}");
    gitcd_json(repository.path(), &["fork", "--json", "--independent", second.to_str().unwrap()]);
    std::fs::remove_dir_all(&early).unwrap();
    let said = refused(repository.path(), &[]);
    assert!(said.contains(early.to_str().unwrap()) && !said.contains(second.to_str().unwrap()), "{said}");
    assert!(!repository.path().join("shallow").exists());
    let forgotten = gitcd_json(repository.path(), &["retain", "--json", &forgets(&early)]);
    assert!(forgotten["forks"].as_array().unwrap().is_empty(), "{forgotten:#}");
    let made = retain(repository.path(), &["--keep-commits=5", "--no-archive", "--prune=now"]);
    assert!(made["revision"].as_i64().unwrap() > *revision, "{made:#}");
    Repository::at(&second).fsck();
    Repository::at(&second).verify();
    // A temporary fork is gone when its folder is, and one of a cut history ends where that does.
    let late = forked(repository.path(), &["--temporary"], &early);
    late.fsck();
    late.verify();
    assert_eq!(
        std::fs::read(early.join("shallow")).unwrap(),
        std::fs::read(repository.path().join("shallow")).unwrap()
    );
    assert!(refused(repository.path(), &[]).contains(early.to_str().unwrap()));
    std::fs::remove_dir_all(&early).unwrap();
    retain(repository.path(), &["--keep-commits=5", "--no-archive", "--prune=now"]);
    repository.fsck();
    repository.verify();
}

/// A new repository at the path of a fork says nothing about the fork, which was moved.
#[tokio::test]
async fn a_fork_that_was_moved_and_replaced_still_counts() {
    let mut store = filled().await;
    store.server.terminate().await;
    let repository = store.server.repository();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().canonicalize().unwrap();
    let [path, old] = ["trial.git", "trial-old.git"].map(|name| at.join(name));
    forked(repository.path(), &[], &path);
    std::fs::rename(&path, &old).unwrap();
    Repository::init(&path);
    assert!(refused(repository.path(), &[]).contains("may have been moved"));
    gitcd_json(repository.path(), &["fork", "--json", "--independent", old.to_str().unwrap()]);
    retain(repository.path(), &["--keep-commits=5", "--no-archive", "--prune=now"]);
    Repository::at(&old).fsck();
    Repository::at(&old).verify();
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

/// Elsewhere, where it is mounted writable, objects may be deleted.
#[tokio::test]
async fn a_fork_of_what_is_mounted_read_only_is_refused_unless_that_is_accepted() {
    let mut store = Store::start(&[]).await;
    put(&mut store, KEYS[0]).await;
    store.committed().await;
    store.server.terminate().await;
    let repository = store.server.repository();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("repo.git");
    let fork = |flags: &[&str]| {
        let words = [&["fork", "--json"], flags, &[path.to_str().unwrap()]].concat();
        where_it_is_read_only(repository.path(), &words)
    };
    let Some(refused) = fork(&[]) else { return };
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && !path.exists(), "{refused:?}");
    assert!(said.contains("mounted read only here") && said.contains("--unregistered"), "{said}");
    let accepted = fork(&["--unregistered"]).expect("the mount was made before");
    let said = String::from_utf8_lossy(&accepted.stderr).into_owned();
    assert!(accepted.status.success() && said.contains("not registered"), "{accepted:?}");
    let fork = Repository::at(&path);
    fork.fsck();
    fork.verify();
    // It is registered once a gitcd serves it where the origin is writable.
    let listed = || gitcd_json(repository.path(), &["retain", "--json", "--list-forks"])["forks"].clone();
    assert_eq!(listed().as_array().unwrap().len(), 0);
    let server = Launch::new(Kind::Gitcd).folder(folder.path()).argument("--key-prefixes=/registry").start().await;
    assert_eq!(listed()[0].as_str(), path.canonicalize().unwrap().to_str());
    drop(server);
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
