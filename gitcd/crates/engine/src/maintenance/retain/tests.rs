use std::fs::{self, File};

use gitcd_repo::alternates::ObjectsInUse;
use gitcd_repo::boundary::FOLDER;
use gitcd_repo::graph::Graph;
use rustix::fs::FlockOperation;

use super::super::prune::tests::{Bare, DAY};
use super::*;

mod archives;
mod former;

const REFERENCES: [&str; 2] = ["refs/heads/main", "refs/gitcd/metadata/main"];

/// Where `gitcd retain` is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Killed {
    Archived,
    Recorded,
    CutMade,
    Searched,
    Never,
}

async fn git() -> Option<Program> {
    Program::find().await.ok()
}

fn start(git: &Program, bare: &Bare) -> Retention {
    start_in(git, bare.folder())
}

fn start_in(git: &Program, repository: &Path) -> Retention {
    // A channel without a sender counts as stopped.
    let (running, stopped) = watch::channel(false);
    std::mem::forget(running);
    Retention::start(git.clone(), repository, stopped).unwrap()
}

/// Prunes what was cut off, as `--prune=now` does.
async fn now(retention: &Retention) -> Result<usize, RetainError> {
    retention.prune(&mut retention.lock_branches()?).await
}

fn plan(bare: &Bare, oldest: &str) -> CutRequest {
    let repository = git2::Repository::open(bare.folder()).unwrap();
    let oldest = Oid::from_str(oldest).unwrap();
    let tips: Vec<Oid> = REFERENCES.iter().filter_map(|name| repository.refname_to_id(name).ok()).collect();
    let plan = Graph::lenient().plan_cut(&repository, &[oldest], &tips).unwrap();
    let planned = references(bare.folder()).unwrap();
    CutRequest { revision: 1, oldest: [oldest; 2], references: REFERENCES.map(ToOwned::to_owned), plan, planned }
}

/// Cuts as `gitcd retain` does, up to a step.
async fn retain(git: &Program, bare: &Bare, archive: &Path, oldest: &str, killed: Killed) {
    let retention = start(git, bare);
    retention.prepare().unwrap();
    let cut = plan(bare, oldest);
    if cut.plan.removed.is_empty() {
        return;
    }
    match killed {
        Killed::Archived => drop(archive::keep(&retention, &cut, archive).await.unwrap()),
        Killed::Recorded => {
            retention.record(&cut, Some(archive)).unwrap();
        }
        Killed::CutMade => {
            let _kept = archive::keep(&retention, &cut, archive).await.unwrap();
            retention.make(&cut, Some(archive)).unwrap();
        }
        Killed::Searched | Killed::Never => {
            retention.cut(&cut, Some(archive)).await.unwrap();
            retention.search().await.unwrap();
        }
    }
    if killed == Killed::Never {
        now(&retention).await.unwrap();
    }
}

fn filled(texts: &[&str]) -> (Bare, Vec<String>) {
    let bare = Bare::new();
    let line = bare.line(texts);
    bare.git(&["update-ref", REFERENCES[1], &line[line.len() - 1]]);
    bare.git(&["commit-graph", "write", "--reachable"]);
    bare.age(20 * DAY);
    (bare, line)
}

/// Checks that exactly these commits are in the history, and that walks know about the others.
fn check(bare: &Bare, line: &[String], oldest: usize, what: &str) {
    let listed = bare.git(&["rev-list", "--reverse", "main"]);
    assert_eq!(listed.lines().collect::<Vec<_>>(), line[oldest..], "{what}");
    let repository = git2::Repository::open(bare.folder()).unwrap();
    let mut graph = Graph::default();
    let ids: Vec<Oid> = line.iter().map(|id| Oid::from_str(id).unwrap()).collect();
    for (number, id) in ids.iter().enumerate() {
        let found = graph.meet(&repository, *id, ids[ids.len() - 1], |_| false);
        match found {
            Ok(meeting) => assert!(number >= oldest && meeting.bases == [*id], "{what}: {number}"),
            Err(error) => assert!(number < oldest && error.is_cut(), "{what}: {number}: {error}"),
        }
    }
    bare.git(&["fsck", "--full", "--strict"]);
}

#[tokio::test]
async fn a_first_and_a_second_cut_continue_after_a_kill_at_any_step() {
    use Killed::{Archived, CutMade, Never, Recorded, Searched};
    let Some(git) = git().await else { return };
    for killed in [Archived, Recorded, CutMade, Searched, Never] {
        let what = format!("{killed:?}");
        let (bare, line) = filled(&["0", "1", "2", "3", "4", "5"]);
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("archive.git");
        retain(&git, &bare, &archive, &line[2], killed).await;
        check(&bare, &line, if killed >= CutMade { 2 } else { 0 }, &what);
        retain(&git, &bare, &archive, &line[2], Searched).await;
        check(&bare, &line, 2, &what);
        if killed == Never {
            // Less is archived than an interrupted run archived before.
            retain(&git, &bare, &archive, &line[5], Archived).await;
        }
        retain(&git, &bare, &archive, &line[4], killed).await;
        check(&bare, &line, if killed >= CutMade { 4 } else { 2 }, &what);
        retain(&git, &bare, &archive, &line[4], Never).await;
        // If nothing is left to cut, what was cut is pruned.
        let retention = start(&git, &bare);
        retention.prepare().unwrap();
        now(&retention).await.unwrap();
        check(&bare, &line, 4, &what);
        for id in &line[..4] {
            assert!(!bare.has(id), "{what}: {id}");
            assert!(git2::Repository::open(&archive).unwrap().find_commit(id.parse().unwrap()).is_ok(), "{what}");
        }
        assert!(!bare.folder().join("objects/info/commit-graph").exists(), "{what}");
        assert_eq!(fs::read_dir(bare.folder().join(FOLDER).join("cuts")).unwrap().count(), 2, "{what}");
    }
}

#[tokio::test]
async fn what_was_cut_off_later_goes_after_the_grace_period_from_the_cut() {
    let Some(git) = git().await else { return };
    for is_searched in [true, false] {
        let (bare, line) = filled(&["0", "1", "2"]);
        // Loose objects with an old time, which a search found unreachable once.
        let loose = bare.commit("3", &[&line[2]]);
        bare.age(20 * DAY);
        assert_eq!(bare.prune(Some(30 * DAY), Duration::ZERO).await, (0, 0));
        let tip = bare.commit("4", &[&loose]);
        for name in REFERENCES {
            bare.git(&["update-ref", name, &tip]);
        }
        bare.age(20 * DAY);
        let retention = start(&git, &bare);
        retention.cut(&plan(&bare, &tip), None).await.unwrap();
        if is_searched {
            retention.search().await.unwrap();
        }
        drop(retention);
        assert_eq!(bare.prune(None, Duration::ZERO).await, (0, 0), "the cut was a moment ago");
        assert_eq!(bare.prune(None, 13 * DAY).await, (0, 0));
        assert!(bare.has(&line[0]) && bare.has(&loose));
        let (pruned, failed) = bare.prune(None, 14 * DAY + Duration::from_hours(1)).await;
        assert_eq!((pruned, failed), (12, 0), "four commits with a tree and a blob each");
        assert!(!bare.has(&line[0]) && !bare.has(&loose) && bare.has(&tip));
        bare.git(&["fsck", "--full", "--strict"]);
    }
}

/// After a second cut, the parents of the former boundary are gone.
#[tokio::test]
async fn old_objects_go_while_those_of_a_later_cut_are_young() {
    let Some(git) = git().await else { return };
    let (bare, line) = filled(&["0", "1", "2", "3", "4"]);
    let archive = tempfile::tempdir().unwrap();
    let archive = archive.path().join("archive.git");
    retain(&git, &bare, &archive, &line[2], Killed::Never).await;
    let blob = bare.blob("unreachable for another reason");
    // A commit that another branch sent, on top of one that goes.
    let side = bare.commit("side", &[&line[2]]);
    bare.age(20 * DAY);
    retain(&git, &bare, &archive, &line[4], Killed::Searched).await;
    let (pruned, failed) = bare.prune(Some(Duration::ZERO), Duration::from_hours(2)).await;
    assert!(pruned > 0 && failed == 0, "{pruned} {failed}");
    assert!(!bare.has(&line[3]) && !bare.has(&blob) && !bare.has(&side));
    bare.git(&["fsck", "--full", "--strict"]);
}

#[tokio::test]
async fn now_deletes_what_was_cut_off_and_nothing_else() {
    let Some(git) = git().await else { return };
    let (bare, line) = filled(&["0", "1", "2", "3"]);
    let other = bare.blob("unreachable for another reason");
    let side = bare.commit("side", &[&line[1]]);
    let retention = start(&git, &bare);
    retention.cut(&plan(&bare, &line[3]), None).await.unwrap();
    // The recent commit needs one that was cut off.
    assert_eq!(now(&retention).await.unwrap(), 6);
    assert!(bare.has(&other) && bare.has(&side) && bare.has(&line[1]) && !bare.has(&line[0]) && !bare.has(&line[2]));
    drop(retention);
    bare.age(20 * DAY);
    assert_eq!(bare.prune(Some(Duration::ZERO), DAY).await.1, 0);
    assert!(!bare.has(&line[1]) && !bare.has(&side));
    check(&bare, &line, 3, "after both");
}

/// A server of the past reads the objects, or that of a repository that shares them.
#[tokio::test]
async fn nothing_is_deleted_while_a_gitcd_reads_the_objects_for_another_repository() {
    let Some(git) = git().await else { return };
    let (bare, line) = filled(&["0", "1", "2"]);
    let retention = start(&git, &bare);
    let reads = ObjectsInUse::all(bare.folder());
    let is_in_use = |result: Result<usize, RetainError>| matches!(result, Err(RetainError::Maintenance(JoinError::InUse(path))) if path == bare.folder());
    assert!(is_in_use(now(&retention).await), "before anything is cut");
    retention.cut(&plan(&bare, &line[2]), None).await.unwrap();
    retention.search().await.unwrap();
    drop(retention);
    bare.age(20 * DAY);
    assert_eq!(bare.prune(Some(Duration::ZERO), DAY).await, (0, 0), "it is no failure");
    assert!(line.iter().all(|id| bare.has(id)));
    drop(reads);
    let retention = start(&git, &bare);
    assert_eq!(now(&retention).await.unwrap(), 6);
    assert!(!bare.has(&line[0]) && bare.has(&line[2]));
    bare.git(&["fsck", "--full", "--strict"]);
    // Also in a repository that was never cut.
    let (other, _) = filled(&["0"]);
    let blob = other.blob("unreachable");
    other.age(20 * DAY);
    let reads = ObjectsInUse::all(other.folder());
    assert_eq!(other.prune(None, Duration::ZERO).await, (0, 0));
    assert!(other.has(&blob));
    drop(reads);
    assert_eq!(other.prune(None, Duration::ZERO).await, (1, 0));
}

/// While the archive gets the older commits, which may take long.
#[tokio::test]
async fn a_plan_is_not_used_once_references_may_need_more() {
    let Some(git) = git().await else { return };
    let (bare, line) = filled(&["0", "1", "2"]);
    let retention = start(&git, &bare);
    let planned = plan(&bare, &line[2]);
    // A tag is no commit, but leads to one.
    bare.git(&["-c", "user.name=a", "-c", "user.email=a@b", "tag", "-a", "-m", "old", "old", &line[1]]);
    assert!(matches!(retention.cut(&planned, None).await, Err(RetainError::Moved(name)) if name == "refs/tags/old"));
    bare.git(&["tag", "-d", "old"]);
    // The branch merges something old, or goes forward.
    let side = bare.commit("side", &[&line[0]]);
    let merge = bare.commit("merge", &[&line[2], &side]);
    bare.git(&["update-ref", REFERENCES[0], &merge]);
    assert!(matches!(retention.cut(&planned, None).await, Err(RetainError::Moved(name)) if name == REFERENCES[0]));
    let next = bare.commit("next", &[&line[2]]);
    bare.git(&["update-ref", REFERENCES[0], &next]);
    retention.cut(&planned, None).await.unwrap();
    assert_eq!(bare.git(&["rev-list", "--count", "main"]).trim(), "2");
}

/// Git counts what reflogs name as reachable, and what is before it.
#[tokio::test]
async fn after_a_later_cut_reflogs_do_not_lead_to_what_an_earlier_one_removed() {
    let Some(git) = git().await else { return };
    let (bare, line) = filled(&["0", "1", "2", "3"]);
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive.git");
    retain(&git, &bare, &archive, &line[2], Killed::Never).await;
    assert!(!bare.has(&line[1]));
    bare.git(&["config", "core.logAllRefUpdates", "always"]);
    // The reflog names a commit that continues the former boundary.
    let tip = bare.commit("4", &[&line[3]]);
    for name in REFERENCES {
        bare.git(&["update-ref", name, &tip]);
    }
    retain(&git, &bare, &archive, &tip, Killed::Never).await;
    assert_eq!(bare.git(&["rev-list", "--count", "main"]), "1");
    assert!(bare.has(&line[3]), "the reflog keeps it");
    bare.git(&["fsck", "--full", "--strict"]);
    bare.git(&["gc", "--quiet"]);
    bare.age(20 * DAY);
    assert_eq!(bare.prune(Some(Duration::ZERO), DAY).await.1, 0);
    let last = bare.commit("5", &[&tip]);
    for name in REFERENCES {
        bare.git(&["update-ref", name, &last]);
    }
    bare.git(&["reflog", "expire", "--expire=all", "--all"]);
    now(&start(&git, &bare)).await.unwrap();
    assert!(!bare.has(&line[2]) && !bare.has(&line[3]) && bare.has(&tip));
    bare.git(&["fsck", "--full", "--strict"]);
    // The next cut that removes something also removes the former boundary.
    let newer = bare.commit("6", &[&last]);
    for name in REFERENCES {
        bare.git(&["update-ref", name, &newer]);
    }
    bare.git(&["reflog", "expire", "--expire=all", "--all"]);
    retain(&git, &bare, &archive, &newer, Killed::Never).await;
    assert!(!bare.has(&tip) && !bare.has(&last));
    bare.git(&["fsck", "--full", "--strict"]);
}

#[test]
fn a_snapshot_that_cannot_be_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(replayed_from(folder.path()).unwrap().is_empty());
    fs::create_dir_all(folder.path().join("gitcd/main")).unwrap();
    assert!(replayed_from(folder.path()).unwrap().is_empty());
    fs::write(folder.path().join("gitcd/main/snapshot"), "damaged").unwrap();
    replayed_from(folder.path()).unwrap_err();
    fs::remove_dir_all(folder.path().join("gitcd")).unwrap();
    fs::write(folder.path().join("gitcd"), "no folder").unwrap();
    replayed_from(folder.path()).unwrap_err();
}

#[tokio::test]
async fn what_cannot_be_cut_safely_is_refused() {
    let Some(git) = git().await else { return };
    let (_running, stopped) = watch::channel(false);
    let folder = tempfile::tempdir().unwrap();
    git2::Repository::init_bare(folder.path()).unwrap();
    let start = || Retention::start(git.clone(), folder.path(), stopped.clone());
    let first = start().unwrap();
    assert!(matches!(start(), Err(RetainError::Busy(_))));
    drop(first);
    fs::write(folder.path().join("gc.pid"), "1 host").unwrap();
    assert!(matches!(start(), Err(RetainError::Collected(_))));
    fs::remove_file(folder.path().join("gc.pid")).unwrap();
    let alternates = folder.path().join("objects/info/alternates");
    fs::write(&alternates, "/elsewhere\n").unwrap();
    assert!(matches!(start(), Err(RetainError::Shared(_))));
    fs::remove_file(&alternates).unwrap();
    let config = folder.path().join("config");
    let text = fs::read_to_string(&config).unwrap();
    for added in ["[extensions]\npartialClone = origin\n", "[remote \"origin\"]\npromisor = true\n"] {
        fs::write(&config, format!("{text}{added}")).unwrap();
        assert!(matches!(start(), Err(RetainError::Partial(_))), "{added}");
    }
    fs::write(&config, text).unwrap();
    // Served, or in the middle of a push.
    for path in ["gitcd/locks/refs%2Fheads%2Fmain", "objects/tmp_objdir-gitcd-1"] {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if path.to_string_lossy().contains("objdir") {
            fs::create_dir(&path).unwrap();
        } else {
            fs::write(&path, "").unwrap();
        }
        let held = File::open(&path).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockShared).unwrap();
        let retention = start().unwrap();
        assert!(matches!(retention.lock_branches(), Err(RetainError::Served(_))));
        drop(held);
        assert_eq!(now(&retention).await.unwrap(), 0);
    }
}
