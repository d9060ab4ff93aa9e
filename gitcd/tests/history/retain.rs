//! `gitcd retain`: the state and the kept history stay, the rest is only in the archive.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tokio::sync::OnceCell;

use super::{Store, Written, gitcd, gitcd_json};
use crate::support::build::{compact, list};
use crate::support::{DATA, Kind, Launch, METADATA, Repository, eventually};

mod crash;
mod ring;
mod shared;

const KEYS: [&str; 3] = ["/registry/configmaps/n/a", "/registry/configmaps/n/b", "/registry/pods/n/a"];

/// Merges the remote `lagging`.
const PULL: [&str; 3] = ["pull", "--key-prefixes=/registry", "--remote-names=lagging"];

/// Flags of all stores: small segments, so that the journal does not need the whole history, and commits without a delay.
const FLAGS: [&str; 3] =
    ["--commit-granularity=revision", "--journal-segment-bytes=32768", "--commit-overhead-bytes=1000000000"];

/// Starts a store with about 100 commits, of which the journal needs only the last ones. It is filled once, and copied for each test.
async fn filled() -> Store {
    static FILLED: OnceCell<(PathBuf, Written)> = OnceCell::const_new();
    let filled = FILLED.get_or_init(async || {
        let mut store = Store::start(&FLAGS).await;
        fill(&mut store, 60).await;
        store.server.terminate().await;
        let folder = scratch("retain-filled");
        let copied = Command::new("cp").arg("-a").arg(store.server.folder()).arg(&folder).status();
        assert!(copied.expect("cp can be started").success());
        (folder, store.written)
    });
    let (folder, written) = filled.await;
    let launch = Launch::new(Kind::Gitcd).copy_of(folder).argument("--key-prefixes=/registry");
    let server = FLAGS.iter().fold(launch, |launch, flag| launch.argument(*flag)).start().await;
    let client = server.client().await;
    Store { server, client, written: written.clone() }
}

/// Returns a folder for this process, which does not exist, and removes those of processes that have exited.
fn scratch(name: &str) -> PathBuf {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for entry in std::fs::read_dir(all).expect("Cargo created it").flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let process = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            std::fs::remove_dir_all(entry.path()).ok();
        }
    }
    all.join(format!("{name}-{}", std::process::id()))
}

async fn fill(store: &mut Store, commits: usize) {
    for number in 0..commits {
        put(store, KEYS[number % KEYS.len()]).await;
        // There is one flush a second at most, so each costs a second here.
        if number % 20 == 19 {
            store.committed().await;
        }
    }
    compacted(store).await;
}

async fn put(store: &mut Store, key: &str) {
    let (number, pad) = (store.written.len(), "x".repeat(2000));
    store.put(key, &format!("{{\"kind\":\"K\",\"n\":{number},\"pad\":\"{pad}\"}}\n")).await;
}

/// Writes and compacts until the journal starts from a later commit, so that the cut may be close to the tip.
async fn compacted(store: &mut Store) {
    let last = |store: &Store| *store.written.keys().next_back().expect("it has writes");
    let (revision, repository) = (last(store), store.server.repository());
    eventually("the journal to start later", async || {
        for _ in 0..18 {
            put(store, KEYS[0]).await;
        }
        store.committed().await;
        store.client.compact(compact(last(store))).await.ok();
        let planned = retain(repository.path(), &["--keep=now", "--no-archive", "--dry-run"]);
        (planned["revision"].as_i64() >= Some(revision - 20)).then_some(())
    })
    .await;
}

fn retain(repository: &Path, words: &[&str]) -> Value {
    gitcd_json(repository, &[&["retain", "--json"], words].concat())
}

fn count(repository: &Repository, reference: &str) -> usize {
    repository.git(&["rev-list", "--count", reference]).trim().parse().expect("a number")
}

/// Returns the revisions of a key as the log has them, newest first.
fn logged(repository: &Path, key: &str) -> Vec<i64> {
    let log = gitcd_json(repository, &["log", "--json", "--limit=10000", key]);
    let log = log.as_array().expect("the log is a list");
    log.iter().filter_map(|one| one["revision"].as_i64()).collect()
}

async fn check_state(store: &Store) {
    let answer = store.client.range(list("/registry/")).await.ok();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("the test writes text");
    let found: Vec<_> = answer.kvs.iter().map(|kv| (text(&kv.key), text(&kv.value))).collect();
    let state = store.at(i64::MAX);
    let wanted: Vec<_> = state.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    assert_eq!(found, wanted);
}

#[tokio::test]
async fn older_commits_are_only_in_the_archive_and_all_else_stays() {
    let mut store = filled().await;
    let (folder, all) = (tempfile::tempdir().unwrap(), store.written.keys().copied().collect::<Vec<_>>());
    let archive = folder.path().join("archive.git");
    let to_archive = format!("--archive={}", archive.display());
    store.server.terminate().await;
    let repository = store.server.repository();
    let (head, before) = (repository.reference(DATA), size(repository.path()));
    let planned = retain(repository.path(), &["--keep-commits=30", &to_archive, "--dry-run"]);
    assert!(!archive.exists() && !repository.path().join("shallow").exists(), "a dry run changes nothing");
    let made = retain(repository.path(), &["--keep-commits=30", &to_archive, "--prune=now"]);
    assert_eq!((&made["commits"], &made["revision"]), (&planned["commits"], &planned["revision"]));
    assert!(made["prunedObjects"].as_u64().unwrap() > 100, "{made:#}");
    assert_eq!(repository.reference(DATA), head, "no commit gets another ID");
    let kept = count(&repository, DATA);
    assert!((31..=60).contains(&kept), "{kept} of {made:#}");
    assert!(size(repository.path()) < before, "the space is freed");
    repository.fsck();
    repository.verify();
    // The archive has the rest, and can be read like the repository.
    let archived = Repository::at(&archive);
    archived.fsck();
    // The branch begins with an empty commit, and the oldest kept commit is in both.
    assert_eq!(count(&archived, DATA) + kept, all.len() + 2);
    let key = KEYS[0];
    let (old, new) = (logged(&archive, key), logged(repository.path(), key));
    let known: Vec<i64> = store.versions(key).iter().map(|(revision, ..)| *revision).collect();
    assert_eq!([&new[..new.len() - 1], &old[..]].concat(), known, "{new:?} {old:?}");
    // Of keys that the oldest kept commit changed or not, it is not known how they came about.
    for key in KEYS {
        let log = gitcd_json(repository.path(), &["log", "--json", "-p", "--limit=10000", key]);
        let (oldest, newer) = log.as_array().and_then(|log| log.split_last()).expect("the log has a version");
        assert_eq!((&oldest["what"], &oldest["fields"]), (&"boundary".into(), &Value::Array(Vec::new())), "{key}");
        assert!(newer.iter().all(|version| version["what"] == "update"), "{key}: {log:#}");
    }
    // A moment before the cut is refused, with the remedy.
    let early = gitcd(repository.path(), &["show", "--at=5", key]);
    let said = String::from_utf8_lossy(&early.stderr).into_owned();
    assert!(said.contains("older history was cut on 20") && said.contains(&*archive.to_string_lossy()), "{said}");
    // It is served again, and cut again: the archive continues.
    store.server.restart().await;
    store.client = store.server.client().await;
    check_state(&store).await;
    fill(&mut store, 20).await;
    store.server.terminate().await;
    retain(repository.path(), &["--keep-commits=20", &to_archive, "--prune=now"]);
    repository.fsck();
    repository.verify();
    archived.fsck();
    assert_eq!(count(&archived, DATA) + count(&repository, DATA), store.written.len() + 2);
    assert_eq!(retain(repository.path(), &["--keep-commits=20", &to_archive])["commits"], 0, "nothing is older");
    // Together they are whole.
    let whole = folder.path().join("whole.git");
    let status = Command::new("git").args(["clone", "-q", "--bare"]).arg(repository.path()).arg(&whole).status();
    assert!(status.expect("git is installed").success());
    Repository::at(&whole).git(&["fetch", "-q", "--unshallow", &archive.display().to_string(), DATA]);
    assert_eq!(count(&Repository::at(&whole), DATA), store.written.len() + 1);
}

fn size(repository: &Path) -> u64 {
    let packs = repository.join("objects/pack").read_dir().expect("the folder exists");
    packs.map(|entry| entry.expect("it can be read").metadata().map_or(0, |file| file.len())).sum()
}

#[tokio::test]
async fn a_served_branch_is_cut_while_it_is_written() {
    let mut store = filled().await;
    let repository = store.server.repository();
    let now = gitcd(repository.path(), &["retain", "--keep-commits=10", "--no-archive", "--prune=now"]);
    assert!(String::from_utf8_lossy(&now.stderr).contains("is locked"), "{now:?}");
    assert!(!repository.path().join("shallow").exists(), "nothing was cut");
    let made = retain(repository.path(), &["--keep-commits=10", "--no-archive"]);
    assert_eq!(made["prunedObjects"], Value::Null, "{made:#}");
    let kept = count(&repository, DATA);
    assert!(kept <= 50, "{kept}");
    fill(&mut store, 20).await;
    assert!(count(&repository, DATA) >= kept + 20);
    check_state(&store).await;
    store.server.kill();
    store.server.restart().await;
    store.client = store.server.client().await;
    check_state(&store).await;
    store.committed().await;
    repository.fsck();
    repository.verify();
}

#[tokio::test]
async fn what_needs_the_whole_history_is_named() {
    let mut store = Store::start(&FLAGS).await;
    put(&mut store, KEYS[0]).await;
    put(&mut store, KEYS[1]).await;
    let repository = store.committed().await;
    let words = ["--keep=now", "--no-archive", "--dry-run"];
    let planned = retain(repository.path(), &words);
    assert_eq!((&planned["revision"], &planned["commits"]), (&Value::Null, &0.into()), "{planned:#}");
    assert_eq!(planned["keptFor"], "the journal of branch \"default\"", "{planned:#}");
    let said = gitcd(repository.path(), &[&["retain"], &words[..]].concat());
    let wanted = "more is kept than requested, because the journal of branch \"default\" needs it\nnothing older can be removed\n";
    assert_eq!(String::from_utf8_lossy(&said.stdout), wanted);
}

#[tokio::test]
async fn branches_that_merge_one_another_go_on_and_bring_nothing_back() {
    let (_folder, [mut one, mut other]) = members(["one", "other"]).await;
    let key = |side: &str| format!("/registry/configmaps/{side}/a");
    let value = |number: usize| format!("{{\"kind\":\"K\",\"n\":{number},\"pad\":\"{}\"}}\n", "x".repeat(2000));
    for number in 0..20 {
        one.put(&key("one"), &value(number)).await;
        other.put(&key("other"), &value(number)).await;
        has(&other, &key("one"), &value(number)).await;
        has(&one, &key("other"), &value(number)).await;
    }
    compacted(&mut one).await;
    let (here, there) = (one.committed().await, other.committed().await);
    let all = count(&there, DATA);
    // While it is served, and when everything that is older is pruned.
    for (round, keep) in ["--keep-commits=10", "--keep=now"].into_iter().enumerate() {
        if round > 0 {
            compacted(&mut one).await;
            one.server.terminate().await;
        }
        let prune = if round > 0 { "--prune=now" } else { "--prune=later" };
        retain(here.path(), &[keep, "--no-archive", prune]);
        if round > 0 {
            one.server.restart().await;
            one.client = one.server.client().await;
        }
        let cut = count(&here, DATA);
        assert!(cut < all - 30, "{cut} of {all}");
        for number in round * 100 + 100..round * 100 + 110 {
            one.put(&key("one"), &value(number)).await;
            other.put(&key("other"), &value(number)).await;
            has(&other, &key("one"), &value(number)).await;
            has(&one, &key("other"), &value(number)).await;
        }
        one.committed().await;
        other.committed().await;
        assert!(count(&here, DATA) + 30 < count(&there, DATA), "the other branch did not bring it back");
    }
    assert!(count(&there, DATA) > all, "the other branch keeps its own");
    for repository in [here, there] {
        repository.fsck();
        repository.verify();
    }
}

async fn has(store: &Store, key: &str, value: &str) {
    eventually(key, async || {
        let answer = store.client.range(crate::support::build::get(key)).await.ok();
        (answer.kvs.first()?.value == value.as_bytes()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_reference_that_is_behind_keeps_its_history() {
    let mut store = filled().await;
    store.server.terminate().await;
    let repository = store.server.repository();
    let old = repository.git(&["rev-parse", &format!("{DATA}~40")]);
    repository.git(&["update-ref", "refs/heads/old", old.trim()]);
    let made = retain(repository.path(), &["--keep-commits=5", "--no-archive", "--prune=now"]);
    assert_eq!(made["keptFor"], "refs/heads/old", "{made:#}");
    assert!(count(&repository, DATA) > 40 && count(&repository, DATA) < 65);
    repository.git(&["merge-base", DATA, "refs/heads/old"]);
    repository.git(&["update-ref", "-d", "refs/heads/old"]);
    let made = retain(repository.path(), &["--keep=now", "--no-archive", "--prune=now"]);
    let by_journal = made["keptFor"].as_str().is_some_and(|what| what.contains("journal"));
    assert!(by_journal && count(&repository, DATA) < 40, "{made:#}");
    repository.fsck();
    repository.verify();
    store.server.restart().await;
    store.client = store.server.client().await;
    check_state(&store).await;
}

/// Starts stores of which each continuously merges the next one.
async fn members<const COUNT: usize>(names: [&str; COUNT]) -> (tempfile::TempDir, [Store; COUNT]) {
    let temporary = tempfile::tempdir().expect("the temporary folder is writable");
    let path = |name: &str| temporary.path().join(name).join("repo.git");
    let mut servers = Vec::new();
    for (at, name) in names.into_iter().enumerate() {
        std::fs::create_dir(temporary.path().join(name)).expect("the folder is writable");
        let repository = Repository::init(&path(name));
        let next = path(names[(at + 1) % COUNT]).display().to_string();
        repository.git(&["remote", "add", "origin", &next]);
        let mut launch =
            Launch::new(Kind::Gitcd).folder(&temporary.path().join(name)).argument("--key-prefixes=/registry");
        for flag in FLAGS.into_iter().chain(["--remote-names=origin"]) {
            launch = launch.argument(flag);
        }
        servers.push(launch.argument("--pull-ticker-duration=100ms").start().await);
    }
    let mut all = Vec::new();
    for server in servers {
        let client = server.client().await;
        all.push(Store { server, client, written: Written::new() });
    }
    (temporary, all.try_into().unwrap_or_else(|_| panic!("all were started")))
}
