use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use git2::{Oid, Repository, Signature};

use super::*;

fn git(repository: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git").arg("-C").arg(repository).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Creates a repository whose history is in this many old packs, one commit in each.
fn with_packs(folder: &Path, packs: usize) -> Oid {
    let repository = Repository::init_bare(folder).unwrap();
    let author = Signature::now("a", "a@b").unwrap();
    let (mut tip, mut tree): (Option<Oid>, Option<Oid>) = (None, None);
    for number in 0..packs {
        let before = tree.map(|tree| repository.find_tree(tree).unwrap());
        let mut builder = repository.treebuilder(before.as_ref()).unwrap();
        let text = format!("{number}\n{}", "one of many lines\n".repeat(100));
        builder.insert("file", repository.blob(text.as_bytes()).unwrap(), 0o100_644).unwrap();
        tree = Some(builder.write().unwrap());
        let parents: Vec<_> = tip.iter().map(|tip| repository.find_commit(*tip).unwrap()).collect();
        let parents: Vec<_> = parents.iter().collect();
        let now = repository.find_tree(tree.unwrap()).unwrap();
        tip = Some(repository.commit(Some("refs/heads/main"), &author, &author, "c", &now, &parents).unwrap());
        git(folder, &["repack", "-d", "-q"]);
    }
    age(folder);
    tip.unwrap()
}

fn age(folder: &Path) {
    let old = SystemTime::now() - Duration::from_mins(5);
    for entry in std::fs::read_dir(folder.join("objects/pack")).unwrap().flatten() {
        let file = File::open(entry.path()).unwrap();
        file.set_modified(old).unwrap();
    }
}

fn count(folder: &Path) -> usize {
    let files = std::fs::read_dir(folder.join("objects/pack")).unwrap().flatten();
    files.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "pack")).count()
}

async fn round(folder: &Path, all: bool) -> Maintenance {
    let maintenance = Maintenance::new(folder.to_owned(), None);
    let (_going_on, stopped) = watch::channel(false);
    maintenance.round(all, &stopped).await;
    maintenance
}

fn done(maintenance: &Maintenance) -> (u64, u64) {
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    (load(&maintenance.counters.joins), load(&maintenance.counters.failures))
}

#[tokio::test]
async fn many_packs_become_few_small_ones_and_everything_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let tip = with_packs(folder.path(), FEW + 2);
    git(folder.path(), &["config", "gc.autoPackLimit", "5"]);
    let before = git(folder.path(), &["rev-list", "--objects", "--all"]);
    let size = || {
        std::fs::read_dir(folder.path().join("objects/pack"))
            .unwrap()
            .flatten()
            .map(|entry| entry.metadata().unwrap().len())
            .sum::<u64>()
    };
    let large = size();
    // As `git maintenance` may leave it: it names packs that will be removed.
    git(folder.path(), &["multi-pack-index", "write"]);
    let maintenance = round(folder.path(), false).await;
    assert_eq!(done(&maintenance), (1, 0));
    assert!(count(folder.path()) <= 2, "{}", count(folder.path()));
    assert!(size() * 2 < large, "{} of {large} bytes: values are stored as deltas", size());
    git(folder.path(), &["fsck", "--full", "--strict"]);
    git(folder.path(), &["commit-graph", "verify"]);
    assert!(folder.path().join("objects/info/commit-graphs").is_dir());
    assert_eq!(git(folder.path(), &["rev-list", "--objects", "--all"]), before);
    // A repository opened earlier still finds everything.
    assert_eq!(Repository::open(folder.path()).unwrap().find_commit(tip).unwrap().id(), tip);
    let left: Vec<_> = std::fs::read_dir(folder.path().join("gitcd-maintenance/objects/pack")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(done(&round(folder.path(), false).await), (0, 0), "nothing is left to do");
}

#[tokio::test]
async fn who_asks_gets_one_pack_however_few_there_are() {
    let folder = tempfile::tempdir().unwrap();
    with_packs(folder.path(), 3);
    assert_eq!(done(&round(folder.path(), false).await), (0, 0), "the packs are few");
    assert_eq!(done(&round(folder.path(), true).await), (1, 0));
    assert_eq!(count(folder.path()), 1);
    git(folder.path(), &["fsck", "--full", "--strict"]);
}

#[tokio::test]
async fn the_repository_says_whether_and_when() {
    let folder = tempfile::tempdir().unwrap();
    // Git treats colons as separators of paths.
    let folder = folder.path().join("a:\"b");
    std::fs::create_dir(&folder).unwrap();
    let many = FEW + 2;
    with_packs(&folder, many);
    assert_eq!(done(&round(&folder, false).await), (0, 0), "Git's own limit is {PACK_LIMIT}");
    git(&folder, &["config", "gc.autoPackLimit", "1"]);
    for (name, off, on) in [("gc.autoPackLimit", "0", "1"), ("gc.auto", "0", "6700")] {
        git(&folder, &["config", name, off]);
        assert_eq!(done(&round(&folder, false).await), (0, 0), "{name}");
        assert_eq!(count(&folder), many);
        git(&folder, &["config", name, on]);
    }
    assert_eq!(done(&round(&folder, false).await), (1, 0));
    assert!(count(&folder) <= 2, "{}", count(&folder));
    git(&folder, &["fsck", "--full", "--strict"]);
}

#[tokio::test]
async fn a_repository_with_its_own_maintenance_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    with_packs(folder.path(), 3);
    std::fs::write(folder.path().join("gc.pid"), "1 somewhere").unwrap();
    assert_eq!(done(&round(folder.path(), true).await), (0, 0));
    let long_ago = SystemTime::now() - GC_LIMIT - Duration::from_mins(1);
    File::open(folder.path().join("gc.pid")).unwrap().set_modified(long_ago).unwrap();
    let taken = look(folder.path(), true, SETTLED).unwrap();
    assert!(taken.is_some());
    assert_eq!(done(&round(folder.path(), true).await), (0, 0), "another process holds the lock");
    drop(taken);
    assert_eq!(done(&round(folder.path(), true).await), (1, 0));
}

#[tokio::test]
async fn what_cannot_be_joined_stays_as_it_was_and_is_left_alone_for_a_while() {
    let folder = tempfile::tempdir().unwrap();
    with_packs(folder.path(), 3);
    let packs = folder.path().join("objects/pack");
    let broken = std::fs::read_dir(&packs).unwrap().flatten().map(|entry| entry.path());
    let broken = broken.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "pack")).unwrap();
    let whole = std::fs::read(&broken).unwrap();
    std::fs::remove_file(&broken).unwrap();
    std::fs::write(&broken, &whole[..whole.len() / 2]).unwrap();
    age(folder.path());
    let maintenance = round(folder.path(), true).await;
    assert_eq!(done(&maintenance), (0, 1));
    assert_eq!(count(folder.path()), 3, "none was removed");
    assert!(maintenance.rests_until.lock().unwrap().is_some());
    std::fs::write(&broken, &whole).unwrap();
    age(folder.path());
    git(folder.path(), &["fsck", "--full"]);
    assert_eq!(done(&round(folder.path(), true).await), (1, 0), "leftovers of the previous run do no harm");
}

#[test]
fn what_killed_programs_left_is_removed_when_it_is_old() {
    let folder = tempfile::tempdir().unwrap();
    let packs = folder.path().to_owned();
    let old = std::time::SystemTime::now() - ABANDONED - Duration::from_mins(1);
    for (name, is_old) in [(".tmp-12-pack-ab.pack", true), ("tmp_pack_x", true), ("tmp_idx_y", false)] {
        let file = std::fs::File::create(packs.join(name)).unwrap();
        if is_old {
            file.set_modified(old).unwrap();
        }
    }
    std::fs::File::create(packs.join("pack-0.pack")).unwrap().set_modified(old).unwrap();
    sweep(&packs);
    let mut left: Vec<_> = std::fs::read_dir(&packs).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["pack-0.pack", "tmp_idx_y"]);
}

#[tokio::test]
async fn what_is_stopped_leaves_nothing_and_what_was_killed_is_cleared_away() {
    let folder = tempfile::tempdir().unwrap();
    with_packs(folder.path(), 3);
    let drafts = folder.path().join("gitcd-maintenance/objects/pack");
    std::fs::create_dir_all(&drafts).unwrap();
    std::fs::write(drafts.join("tmp_pack_left"), "by one that was killed").unwrap();
    let maintenance = Maintenance::new(folder.path().to_owned(), None);
    let (stop, stopped) = watch::channel(true);
    maintenance.run(stopped.clone()).await;
    assert_eq!(std::fs::read_dir(&drafts).unwrap().count(), 0);
    maintenance.round(true, &stopped).await;
    assert_eq!((done(&maintenance), count(folder.path())), ((0, 0), 3));
    assert_eq!(std::fs::read_dir(&drafts).unwrap().count(), 0, "git was terminated");
    // A commit-graph lock that is older than an hour does not block writing.
    let graphs = folder.path().join("objects/info/commit-graphs");
    std::fs::create_dir_all(&graphs).unwrap();
    let lock = File::create(graphs.join("commit-graph-chain.lock")).unwrap();
    lock.set_modified(SystemTime::now() - Duration::from_hours(2)).unwrap();
    stop.send_replace(false);
    maintenance.round(true, &stopped).await;
    assert_eq!((done(&maintenance), count(folder.path())), ((1, 0), 1));
    git(folder.path(), &["commit-graph", "verify"]);
    assert!(graphs.join("commit-graph-chain").is_file());
}
