use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;

use gitcd_repo::alternates::ObjectsInUse;

use super::super::{Maintenance, OWN};
use super::*;

pub(in super::super) const DAY: Duration = Duration::from_hours(24);

/// A bare repository for stock Git.
pub(in super::super) struct Bare(tempfile::TempDir);

impl Bare {
    pub(in super::super) fn new() -> Self {
        let bare = Self(tempfile::tempdir().unwrap());
        bare.git(&["init", "-q", "--bare", "-b", "main", "."]);
        bare
    }

    pub(in super::super) fn folder(&self) -> &Path {
        self.0.path()
    }

    pub(in super::super) fn run(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = Command::new("git");
        command.arg("-C").arg(self.folder()).args(arguments).env("GIT_CONFIG_GLOBAL", "/dev/null");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "a").env(format!("GIT_{who}_EMAIL"), "a@b");
        }
        command.output().unwrap()
    }

    pub(in super::super) fn git(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub(in super::super) fn has(&self, id: &str) -> bool {
        self.run(&["cat-file", "-e", id]).status.success()
    }

    pub(in super::super) fn blob(&self, text: &str) -> String {
        let file = self.folder().join("text");
        fs::write(&file, text).unwrap();
        self.git(&["hash-object", "-w", file.to_str().unwrap()])
    }

    /// Creates a commit with one file and these parents.
    pub(in super::super) fn commit(&self, text: &str, parents: &[&str]) -> String {
        let blob = self.blob(text);
        self.git(&["read-tree", "--empty"]);
        self.git(&["update-index", "--add", "--cacheinfo", &format!("100644,{blob},file")]);
        let tree = self.git(&["write-tree"]);
        self.git(&["read-tree", "--empty"]);
        let parents = parents.iter().flat_map(|parent| ["-p", parent]);
        self.git(&["commit-tree", "-m", text, &tree].into_iter().chain(parents).collect::<Vec<_>>())
    }

    /// Creates a line of commits, each in a separate pack, and moves the branch to its end.
    pub(in super::super) fn line(&self, texts: &[&str]) -> Vec<String> {
        let mut line: Vec<String> = Vec::new();
        for text in texts {
            let parents: Vec<_> = line.last().map(String::as_str).into_iter().collect();
            line.push(self.commit(text, &parents));
            self.git(&["update-ref", "refs/heads/main", line.last().unwrap()]);
            self.git(&["repack", "-d", "-q"]);
        }
        line
    }

    /// Sets the age of all object files.
    pub(in super::super) fn age(&self, age: Duration) {
        let mut folders = vec![self.folder().join("objects")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                if entry.path().is_dir() {
                    folders.push(entry.path());
                } else {
                    File::open(entry.path()).unwrap().set_modified(SystemTime::now() - age).unwrap();
                }
            }
        }
    }

    /// Ages all objects, and records the unreachable ones as unreachable for this long.
    async fn age_unreachable(&self, age: Duration) {
        self.age(age + DAY);
        let maintenance = Maintenance::new(self.folder().to_owned(), None);
        let (_going_on, stopped) = watch::channel(false);
        maintenance.prune(true, SystemTime::now() - age, &stopped).await;
        assert_eq!(maintenance.counters.pruned.load(Ordering::Relaxed), 0, "the objects were not recorded before");
    }

    fn packs(&self) -> usize {
        let names = fs::read_dir(self.folder().join("objects/pack")).unwrap().flatten().map(|entry| entry.path());
        names.filter(|path| path.extension().is_some_and(|extension| extension == "pack")).count()
    }

    /// Prunes at a later time; returns the number of pruned objects and of failures.
    pub(in super::super) async fn prune(&self, expire: Option<Duration>, later: Duration) -> (u64, u64) {
        let maintenance = Maintenance::new(self.folder().to_owned(), expire);
        let (_going_on, stopped) = watch::channel(false);
        maintenance.prune(true, SystemTime::now() + later, &stopped).await;
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        (load(&maintenance.counters.pruned), load(&maintenance.counters.failures))
    }

    pub(in super::super) fn is_sound(&self) {
        self.git(&["fsck", "--full", "--strict"]);
        self.git(&["commit-graph", "verify"]);
        let output = self.run(&["log", "--oneline", "--all"]);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}

#[tokio::test]
async fn what_nothing_has_led_to_for_two_weeks_goes_and_everything_else_stays() {
    let bare = Bare::new();
    let line = bare.line(&["1", "2", "3", "4"]);
    bare.git(&["commit-graph", "write", "--reachable", "--split"]);
    bare.git(&["update-ref", "refs/heads/main", &line[1]]);
    let loose = bare.blob("unreachable");
    bare.age_unreachable(20 * DAY).await;
    let young = bare.blob("unreachable, and young");
    assert_eq!(
        bare.prune(None, Duration::ZERO).await,
        (7, 0),
        "two commits with a tree and a blob each, and a loose blob"
    );
    for gone in [&line[2], &line[3], &loose] {
        assert!(!bare.has(gone), "{gone}");
    }
    for kept in [&line[0], &line[1], &young] {
        assert!(bare.has(kept), "{kept}");
    }
    assert_eq!(bare.packs(), 2, "packs without other objects are removed");
    bare.is_sound();
    assert_eq!(bare.prune(None, Duration::ZERO).await, (0, 0));
    let left: Vec<_> = fs::read_dir(bare.folder().join(OWN).join("objects/pack")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_pack_that_holds_both_is_written_anew_with_what_is_left() {
    let bare = Bare::new();
    let line = bare.line(&["1", "2", "3", "4"]);
    bare.git(&["repack", "-a", "-d", "-q"]);
    bare.git(&["update-ref", "refs/heads/main", &line[2]]);
    bare.age_unreachable(20 * DAY).await;
    let before = bare.git(&["rev-list", "--objects", "--all"]);
    assert_eq!(bare.prune(None, Duration::ZERO).await, (3, 0));
    assert_eq!((bare.packs(), bare.has(&line[3])), (1, false));
    assert_eq!(bare.git(&["rev-list", "--objects", "--all"]), before);
    bare.is_sound();
}

#[tokio::test]
async fn it_is_known_since_when_also_after_packs_were_joined() {
    let bare = Bare::new();
    let line = bare.line(&["1", "2", "3"]);
    bare.git(&["update-ref", "refs/heads/main", &line[1]]);
    bare.age(DAY);
    assert_eq!(bare.prune(None, Duration::ZERO).await, (0, 0), "the objects became unreachable a moment ago");
    let maintenance = Maintenance::new(bare.folder().to_owned(), None);
    let (_going_on, stopped) = watch::channel(false);
    maintenance.round(true, &stopped).await;
    assert_eq!(bare.packs(), 1, "one new pack is left");
    assert_eq!(bare.prune(None, 13 * DAY).await, (0, 0));
    assert_eq!(bare.prune(None, 14 * DAY + Duration::from_hours(1)).await, (3, 0));
    assert!(!bare.has(&line[2]) && bare.has(&line[1]));
    bare.is_sound();
}

#[tokio::test]
async fn recent_objects_stay_with_everything_reachable_from_them() {
    let bare = Bare::new();
    let line = bare.line(&["1", "2"]);
    bare.git(&["update-ref", "refs/heads/main", &line[0]]);
    bare.age_unreachable(20 * DAY).await;
    // Its parent is old, and otherwise unreachable.
    let young = bare.commit("3", &[&line[1]]);
    assert_eq!(bare.prune(None, Duration::ZERO).await, (0, 0));
    bare.git(&["update-ref", "refs/heads/main", &young]);
    bare.is_sound();
    // The reflog makes it reachable, too.
    bare.git(&["config", "core.logAllRefUpdates", "always"]);
    bare.git(&["update-ref", "refs/heads/main", &line[0]]);
    bare.age(20 * DAY);
    assert_eq!(bare.prune(None, Duration::ZERO).await, (0, 0));
    bare.git(&["reflog", "expire", "--expire=now", "--all"]);
    // Git reused an object of the pack a moment ago.
    bare.age(Duration::from_mins(10));
    bare.git(&["repack", "-a", "-d", "-q"]);
    assert_eq!(bare.prune(Some(Duration::ZERO), Duration::ZERO).await, (0, 0));
    assert!(bare.prune(Some(Duration::ZERO), Duration::from_hours(2)).await.0 >= 3);
    assert!(bare.has(&line[0]) && !bare.has(&line[1]) && !bare.has(&young));
    bare.is_sound();
}

#[tokio::test]
async fn what_was_led_to_until_a_moment_ago_stays_however_old_it_is() {
    let bare = Bare::new();
    let line = bare.line(&["1", "2"]);
    bare.age(20 * DAY);
    assert_eq!(bare.prune(None, Duration::ZERO).await, (0, 0));
    bare.git(&["update-ref", "refs/heads/main", &line[0]]);
    assert_eq!(bare.prune(None, DAY).await, (0, 0), "there was no run since the branch was moved back");
    bare.git(&["update-ref", "refs/heads/main", &line[1]]);
    bare.is_sound();
    assert_eq!(bare.prune(None, 10 * DAY).await, (0, 0));
    bare.git(&["update-ref", "refs/heads/main", &line[0]]);
    assert_eq!(bare.prune(None, 20 * DAY).await, (0, 0), "the objects were reachable again meanwhile");
    assert_eq!(bare.prune(None, 35 * DAY).await, (3, 0));
}

#[tokio::test]
async fn objects_in_a_kept_pack_stay_with_everything_reachable_from_them() {
    let bare = Bare::new();
    let line = bare.line(&["1", "2", "3"]);
    bare.git(&["update-ref", "refs/heads/main", &line[0]]);
    bare.age_unreachable(20 * DAY).await;
    let has_last = |path: &Path| {
        let listed = Command::new("git").arg("show-index").stdin(File::open(path).unwrap()).output().unwrap();
        String::from_utf8(listed.stdout).unwrap().contains(&line[2])
    };
    let names = fs::read_dir(bare.folder().join("objects/pack")).unwrap().flatten().map(|entry| entry.path());
    let index =
        names.filter(|path| path.extension().is_some_and(|extension| extension == "idx")).find(|path| has_last(path));
    let keep = index.unwrap().with_extension("keep");
    fs::write(&keep, "").unwrap();
    assert_eq!(bare.prune(None, Duration::ZERO).await, (0, 0), "a commit refers to its parent");
    bare.git(&["update-ref", "refs/heads/main", &line[2]]);
    bare.is_sound();
    // Without the `.keep` file all of it is pruned.
    bare.git(&["update-ref", "refs/heads/main", &line[0]]);
    fs::remove_file(keep).unwrap();
    bare.age_unreachable(20 * DAY).await;
    assert_eq!(bare.prune(None, Duration::ZERO).await, (6, 0));
    bare.is_sound();
}

#[tokio::test]
async fn the_repository_says_when_and_whether() {
    let bare = Bare::new();
    let loose = bare.blob("unreachable");
    bare.age(3 * DAY);
    let expire = |value: &str| bare.git(&["config", "gc.pruneExpire", value]);
    for (value, gone) in [("never", false), ("4.days.ago", false), ("now", true)] {
        expire(value);
        assert_eq!(
            bare.prune(Some(Duration::MAX), Duration::ZERO).await,
            (0, 0),
            "the setting overrides the repository's"
        );
        assert_eq!(bare.prune(None, Duration::ZERO).await, (u64::from(gone), 0), "{value}");
        assert_eq!(bare.has(&loose), !gone, "{value}");
    }
    bare.blob("unreachable");
    bare.age(3 * DAY);
    bare.git(&["config", "extensions.partialClone", "origin"]);
    assert_eq!(bare.prune(None, Duration::ZERO).await, (0, 0), "reachability is unknown in a partial clone");
    bare.git(&["config", "--unset", "extensions.partialClone"]);
    fs::write(bare.folder().join("gc.pid"), "1 somewhere").unwrap();
    assert_eq!(bare.prune(None, Duration::ZERO).await, (0, 0), "another process holds the lock");
    assert!(bare.has(&loose));
}

#[tokio::test]
async fn a_push_that_ends_soon_is_waited_for() {
    let bare = Bare::new();
    let loose = bare.blob("unreachable");
    bare.age(20 * DAY);
    let pushing = ObjectsInUse::all(bare.folder());
    assert_eq!(bare.prune(None, Duration::ZERO).await, (0, 0), "it does not end");
    assert!(bare.has(&loose));
    let ends = std::thread::spawn(move || {
        std::thread::sleep(LOCK_PAUSE);
        drop(pushing);
    });
    assert_eq!(bare.prune(None, Duration::ZERO).await, (1, 0));
    ends.join().unwrap();
    assert!(!bare.has(&loose));
}

#[tokio::test]
async fn a_repository_that_cannot_be_read_in_full_loses_nothing() {
    let bare = Bare::new();
    let line = bare.line(&["1", "2", "3"]);
    let loose = bare.blob("unreachable");
    let missing = bare.blob("a file that will be lost");
    bare.git(&["update-index", "--add", "--cacheinfo", &format!("100644,{missing},file")]);
    bare.age(20 * DAY);
    fs::remove_file(bare.folder().join("objects").join(&missing[..2]).join(&missing[2..])).unwrap();
    bare.git(&["update-ref", "refs/heads/main", &line[1]]);
    bare.git(&["update-ref", "refs/heads/lost", &line[2]]);
    fs::write(bare.folder().join("refs/heads/lost"), "0123456789012345678901234567890123456789\n").unwrap();
    let (pruned, failures) = bare.prune(None, Duration::ZERO).await;
    assert_eq!((pruned, failures), (0, 1));
    assert!(bare.has(&line[2]) && bare.has(&loose));
}

#[test]
fn it_is_looked_for_once_a_day() {
    use super::super::{PRUNE_EVERY, PRUNE_FIRST, due};
    let bare = Bare::new();
    let now = SystemTime::now();
    let is_due = |all, uptime, now| due(bare.folder(), all, uptime, now).unwrap().is_some();
    assert!(
        !is_due(false, PRUNE_FIRST / 2, now) && is_due(false, PRUNE_FIRST, now) && is_due(true, Duration::ZERO, now)
    );
    let place =
        MaintenancePaths { repository: bare.folder().to_owned(), draft: bare.folder().join(OWN).join("objects") };
    Record::new(now).write(&place).unwrap();
    assert!(!is_due(false, PRUNE_FIRST, now + PRUNE_EVERY / 2) && is_due(false, Duration::ZERO, now + PRUNE_EVERY));
    assert!(is_due(false, Duration::ZERO, now - DAY), "the clock was wrong then");
    bare.git(&["config", "gc.auto", "0"]);
    assert!(!is_due(false, PRUNE_FIRST, now + PRUNE_EVERY) && is_due(true, Duration::ZERO, now));
}
