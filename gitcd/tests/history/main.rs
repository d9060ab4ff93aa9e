//! The output of `gitcd log`, `show`, `diff` and `at`, compared with what clients wrote.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each test program uses a part of it")]
mod support;

mod blame;
mod compacted;
mod existing;
mod fork;
mod go;
mod merges;
mod past;
mod retain;
mod secrets;
mod verify;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::support::build::{delete, put};
use crate::support::{Client, Kind, Launch, Repository, Server, eventually};

fn gitcd(repository: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
    command.args(arguments).env("GITCD_REPO", repository);
    command.output().expect("gitcd can be started")
}

fn gitcd_json(repository: &Path, arguments: &[&str]) -> Value {
    let output = gitcd(repository, arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}"))
}

/// Acknowledged writes by revision: the keys with their values, or none if deleted.
type Written = BTreeMap<i64, BTreeMap<String, Option<String>>>;

struct Store {
    server: Server,
    client: Client,
    written: Written,
}

impl Store {
    async fn start(arguments: &[&str]) -> Self {
        let mut launch = Launch::new(Kind::Gitcd).argument("--key-prefixes=/registry");
        for argument in arguments {
            launch = launch.argument(*argument);
        }
        let server = launch.start().await;
        let client = server.client().await;
        Self { server, client, written: Written::new() }
    }

    async fn put(&mut self, key: &str, value: &str) -> i64 {
        let answer = self.client.put(put(key, value)).await.ok();
        let revision = answer.header.expect("a response has a header").revision;
        self.written.entry(revision).or_default().insert(key.into(), Some(value.into()));
        revision
    }

    async fn delete(&mut self, key: &str) {
        let answer = self.client.delete_range(delete(key)).await.ok();
        if answer.deleted > 0 {
            let revision = answer.header.expect("a response has a header").revision;
            self.written.entry(revision).or_default().insert(key.into(), None);
        }
    }

    async fn committed(&self) -> Repository {
        eventually("the commits", async || {
            let page: gitcd::status::Status = serde_json::from_str(&self.server.page("/status").await).ok()?;
            (page.branches[0].commit_lag_revisions == 0).then_some(())
        })
        .await;
        self.server.repository()
    }

    /// The versions of a key, newest first: revision, kind of change, value.
    fn versions(&self, key: &str) -> Vec<(i64, &'static str, Option<String>)> {
        let (mut found, mut is_there) = (Vec::new(), false);
        for (revision, keys) in &self.written {
            let Some(value) = keys.get(key) else { continue };
            let what = match (is_there, value) {
                (false, _) => "create",
                (true, Some(_)) => "update",
                (true, None) => "delete",
            };
            is_there = value.is_some();
            found.insert(0, (*revision, what, value.clone()));
        }
        found
    }

    /// Keys and values at a revision.
    fn at(&self, revision: i64) -> BTreeMap<&str, &str> {
        let mut keys = BTreeMap::new();
        for (key, value) in self.written.range(..=revision).flat_map(|(_, keys)| keys) {
            match value {
                Some(value) => keys.insert(&**key, &**value),
                None => keys.remove(&**key),
            };
        }
        keys
    }
}

const KEYS: [&str; 8] = [
    "/registry/configmaps/n/a",
    "/registry/configmaps/n/b",
    "/registry/configmaps/n",
    "/registry/configmaps/m/a",
    "/registry/pods/n/a",
    "/registry/pods/n/.git",
    "/elsewhere/a",
    "compact_rev_key",
];

fn object(rng: &mut StdRng) -> String {
    match rng.random_range(0..4) {
        0 => format!("text {}", rng.random::<u64>()),
        _ => format!("{{\"kind\":\"K\",\"spec\":{{\"a\":{},\"b\":\"x\"}}}}\n", rng.random::<u32>()),
    }
}

#[tokio::test]
async fn every_version_and_every_moment_is_what_clients_wrote() {
    let seed = rand::rng().random();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut store = Store::start(&["--commit-granularity=revision"]).await;
    for step in 0..400 {
        let key = KEYS.choose(&mut rng).expect("KEYS is not empty");
        if rng.random_bool(0.25) {
            store.delete(key).await;
        } else {
            store.put(key, &object(&mut rng)).await;
        }
        if step % 80 == 79 {
            store.committed().await;
        }
    }
    let repository = store.committed().await;
    let repository = repository.path();
    for key in KEYS {
        let wanted = store.versions(key);
        if wanted.is_empty() {
            continue;
        }
        let log = gitcd_json(repository, &["log", "--json", "--limit=1000", "-p", key]);
        let is_data = key.starts_with("/registry/");
        let found: Vec<_> =
            log.as_array().unwrap().iter().map(|one| (one["what"].clone(), one["revision"].clone())).collect();
        if is_data {
            let wanted: Vec<_> = wanted.iter().map(|(revision, what, _)| (json!(what), json!(revision))).collect();
            assert_eq!(found, wanted, "seed {seed}, {key}: {log:#}");
        } else {
            // For keys stored with the metadata, only the last value of each flush is kept.
            assert_eq!(found[0].0 == "delete", wanted[0].1 == "delete", "seed {seed}, {key}: {log:#}");
        }
        for one in log.as_array().unwrap().iter().filter(|one| one["what"] == "update" && is_data) {
            let fields = one["fields"].as_array().unwrap();
            let at = |revision: i64| store.at(revision).get(key).copied().map(ToOwned::to_owned);
            let revision = one["revision"].as_i64().unwrap();
            assert_eq!(fields.is_empty(), at(revision) == at(revision - 1), "seed {seed}, {key}: {one:#}");
        }
    }
    let verified = gitcd_json(repository, &["verify", "--json"]);
    let data = store.at(i64::MAX).keys().filter(|key| key.starts_with("/registry/")).count();
    assert_eq!((&verified["findings"], &verified["keys"]), (&json!([]), &json!(data)), "seed {seed}: {verified:#}");
    let last = *store.written.keys().next_back().unwrap();
    for _ in 0..25 {
        let revision = rng.random_range(2..=last);
        let at = store.at(revision);
        let data: Vec<_> = at.keys().filter(|key| key.starts_with("/registry/")).collect();
        let listed = gitcd_json(repository, &["at", &revision.to_string(), "list", "--json"]);
        assert_eq!(listed["keys"], json!(data), "seed {seed}, revision {revision}");
        for key in KEYS.iter().filter(|key| key.starts_with("/registry/")) {
            let output = gitcd(repository, &["show", &format!("--at={revision}"), key]);
            assert_eq!(output.status.success(), at.contains_key(key), "seed {seed}, {revision} {key}: {output:?}");
            let value = at.get(key).copied().unwrap_or_default();
            assert_eq!(String::from_utf8_lossy(&output.stdout), value, "seed {seed}, {revision} {key}");
        }
        let other = rng.random_range(2..=last);
        let (from, to) = (revision.min(other), revision.max(other));
        let diff = gitcd_json(repository, &["diff", "--json", &format!("--since={from}"), &format!("--until={to}")]);
        let (before, after) = (store.at(from), store.at(to));
        let differs = |key: &&&str| key.starts_with("/registry/") && before.get(**key) != after.get(**key);
        let mut wanted: Vec<_> = KEYS.iter().filter(differs).map(ToString::to_string).collect();
        wanted.sort();
        let mut found: Vec<_> =
            diff["keys"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap().to_owned()).collect();
        found.sort();
        assert_eq!(found, wanted, "seed {seed}, {from} to {to}");
    }
    // A commit is a moment, too: of data, by its first digits, and of metadata.
    let log = gitcd_json(repository, &["log", "--json", "--limit=1000"]);
    for one in log.as_array().unwrap().choose_multiple(&mut rng, 10) {
        let (commit, revision) = (one["commit"].as_str().unwrap(), one["revisions"]["last"].as_i64().unwrap());
        let listed = gitcd_json(repository, &["at", &commit[..10], "list", "--json"]);
        let wanted: Vec<_> = store.at(revision).into_keys().filter(|key| key.starts_with("/registry/")).collect();
        assert_eq!((&listed["revision"], &listed["keys"]), (&json!(revision), &json!(wanted)), "seed {seed}, {one}");
    }
    let metadata = Repository::at(repository).git(&["rev-parse", "refs/gitcd/metadata/main~1"]);
    let listed = gitcd_json(repository, &["at", metadata.trim(), "list", "--json"]);
    let revision = listed["revision"].as_i64().unwrap();
    let wanted: Vec<_> = store.at(revision).into_keys().filter(|key| key.starts_with("/registry/")).collect();
    assert!(revision < last && listed["keys"] == json!(wanted), "seed {seed}, {listed}");
}

#[tokio::test]
async fn the_same_value_put_again_is_a_version_without_changes() {
    let mut store = Store::start(&["--commit-granularity=revision"]).await;
    for _ in 0..3 {
        store.put(KEYS[0], "{}\n").await;
        store.committed().await;
    }
    let repository = store.committed().await;
    let log = gitcd_json(repository.path(), &["log", "--json", "-p", KEYS[0]]);
    let versions: Vec<_> =
        log.as_array().unwrap().iter().map(|one| (&one["what"], &one["version"], &one["fields"])).collect();
    assert_eq!(versions.len(), 3, "{log:#}");
    assert!(versions.iter().all(|(_, _, fields)| fields.as_array().unwrap().is_empty()), "{log:#}");
    assert_eq!(
        versions.iter().map(|(what, ..)| what.as_str().unwrap()).collect::<Vec<_>>(),
        ["update", "update", "create"]
    );
}

#[tokio::test]
async fn people_and_clients_are_distinguished_and_fields_are_shown() {
    let mut store = Store::start(&[]).await;
    let key = "/registry/configmaps/shop/prices";
    let value = |tea: &str, more: &str| {
        format!(
            "{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"prices\",\"namespace\":\"shop\",\"uid\":\"u\"}},\"data\":{{\"tea\":\"{tea}\"{more}}}}}\n"
        )
    };
    let first = store.put(key, &value("3", "")).await;
    store.put(key, &value("4", ",\"milk\":\"1\"")).await;
    let there = store.committed().await;
    // An operator commits in a clone and pushes to the repository.
    let folder = tempfile::tempdir().unwrap();
    let clone = folder.path().join("clone");
    Repository::at(folder.path()).git(&[
        "clone",
        "-q",
        &there.path().display().to_string(),
        &clone.display().to_string(),
    ]);
    let work = Repository::at(&clone);
    let file = clone.join("configmaps/shop/prices");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"tea\": \"4\"", "\"tea\": \"5\"")).unwrap();
    work.git(&["commit", "-qam", "tea is 5"]);
    work.git(&["push", "-q", "origin", "HEAD:main"]);
    eventually("the merge", async || {
        let found = store.client.range(support::build::get(key)).await.result().ok()?;
        String::from_utf8_lossy(&found.kvs.first()?.value).contains("\"5\"").then_some(())
    })
    .await;
    let repository = store.committed().await;
    let output = gitcd(repository.path(), &["log", "-p", "configmaps/shop/prices"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("REVISION  WHEN") && !text.contains('\u{1b}'), "{text}");
    assert!(lines[1].contains("update") && lines[1].ends_with("test"), "{text}");
    assert!(text.contains("    ~ data.tea: \"4\" → \"5\"\n"), "{text}");
    assert!(text.contains("    ~ data.tea: \"3\" → \"4\"\n    + data.milk: \"1\"\n"), "{text}");
    assert!(lines.iter().any(|line| line.starts_with(&first.to_string()) && line.contains("create")), "{text}");

    let by_hand = work.git(&["rev-parse", "HEAD"]);
    let found = gitcd_json(repository.path(), &["show", &format!("--at={}", by_hand.trim()), key]);
    assert_eq!(found["data"]["tea"], "5");
    let found =
        gitcd_json(repository.path(), &["show", &format!("--at={}", work.git(&["rev-parse", "HEAD~1"]).trim()), key]);
    assert_eq!(found["data"]["tea"], "4");

    let branch = gitcd(repository.path(), &["log"]);
    let text = String::from_utf8(branch.stdout).unwrap();
    assert!(text.contains("create configmaps/shop/prices") && text.contains("tea is 5"), "{text}");

    let diff = gitcd(repository.path(), &["diff", &format!("--since={first}"), "configmaps/"]);
    assert_eq!(diff.status.code(), Some(1));
    let text = String::from_utf8(diff.stdout).unwrap();
    assert!(text.contains("~ /registry/configmaps/shop/prices\n    ~ data.tea: \"3\" → \"5\"\n"), "{text}");
    let all = gitcd_json(repository.path(), &["diff", "--since=1h", "--json"]);
    assert_eq!((&all["from"], &all["keys"][0]["what"]), (&json!(0), &json!("create")), "{all:#}");
    let same = gitcd(repository.path(), &["diff", "--since=now"]);
    assert_eq!((same.status.code(), same.stdout.len()), (Some(0), 0), "{same:?}");
}

#[tokio::test]
async fn impossible_requests_are_refused_with_the_remedy() {
    let mut store = Store::start(&[]).await;
    store.put("/registry/a", "1").await;
    let repository = store.committed().await;
    let repository = repository.path();
    let empty = tempfile::tempdir().unwrap();
    for (path, arguments, words) in [
        (
            repository,
            &["log", "nothing"][..],
            "\"nothing\" was never in this branch (its keys begin with \"/registry\")",
        ),
        (repository, &["show", "nothing"], "there is no \"nothing\" at revision 2: the branch has a;"),
        (repository, &["diff", "--since=now", "deploy/nosuch"], "there is no \"deploy/nosuch\" at revision 2 or at"),
        (repository, &["diff", "--since=nothing", "b"], "there is no \"b\" at revision 2: the branch has a"),
        (repository, &["at", "4711", "list"], "revision 4711 is not in Git; the last one is 2"),
        (repository, &["at", "1970-01-01", "list"], "is before the first revision in Git"),
        (repository, &["retain", "--keep=4711", "--no-archive"], "revision 4711 is not in Git; the last one is 2"),
        (repository, &["at", "1a2b3c4", "list"], "there is no commit \"1a2b3c4\" in the repository"),
        (repository, &["at", "soon", "list"], "give a revision (4711), how long ago (10m, 2h, 3days)"),
        (repository, &["log", "--branch=other"], "refs/gitcd/metadata/other is not in"),
        (empty.path(), &["log"], "is not a Git repository"),
        (empty.path(), &["retain", "--keep=1d", "--no-archive"], "is not a Git repository"),
    ] {
        let output = gitcd(path, arguments);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && complaint.contains(words), "{arguments:?}: {complaint}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

#[tokio::test]
async fn commands_that_read_use_the_repository_of_the_current_folder() {
    let mut store = Store::start(&[]).await;
    store.put("/registry/configmaps/shop/a", "1").await;
    let repository = store.committed().await;
    let home = tempfile::tempdir().unwrap();
    let run = |folder: &Path, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
        command.args(arguments).current_dir(folder).env("HOME", home.path()).env_remove("XDG_DATA_HOME");
        command.env_remove("GITCD_REPO").output().expect("gitcd can be started")
    };
    for folder in [repository.path(), &repository.path().join("objects")] {
        for arguments in [&["log"][..], &["show", "configmaps/shop/a"], &["at", "2", "list"], &["verify"], &["graph"]] {
            let output = run(folder, arguments);
            assert!(output.status.success() && !output.stdout.is_empty(), "{arguments:?}: {output:?}");
        }
    }
    // A repository that gitcd has not served is ignored.
    let other = tempfile::tempdir().unwrap();
    git2::Repository::init(other.path()).unwrap();
    let output = run(other.path(), &["log"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("gitcd/repo.git\" is not a Git repository"), "{output:?}");
}

#[tokio::test]
async fn in_a_shallow_clone_history_ends_where_that_does() {
    let mut store = Store::start(&["--commit-granularity=revision"]).await;
    for number in 0..6 {
        store.put(KEYS[0], &format!("{number}")).await;
        store.committed().await;
    }
    let from = store.committed().await;
    let folder = tempfile::tempdir().unwrap();
    let clone = folder.path().join("clone.git");
    Repository::at(folder.path()).git(&["init", "-q", "--bare", &clone.display().to_string()]);
    let url = format!("file://{}", from.path().display());
    let names = ["+refs/heads/*:refs/heads/*", "+refs/gitcd/*:refs/gitcd/*"];
    Repository::at(&clone).git(&["fetch", "-q", "--depth=3", &url, names[0], names[1]]);
    let log = gitcd_json(&clone, &["log", "--json", "-p", KEYS[0]]);
    let log = log.as_array().unwrap();
    assert!((1..6).contains(&log.len()), "{log:#?}");
    let (oldest, newer) = log.split_last().unwrap();
    assert_eq!((&oldest["what"], &oldest["fields"]), (&json!("boundary"), &json!([])), "{log:#?}");
    assert!(newer.iter().all(|version| version["what"] == "update"), "{log:#?}");
    assert!(!gitcd_json(&clone, &["log", "--json"]).as_array().unwrap().is_empty());
    for early in [&["at", "2", "list"][..], &["diff", "--since=2"], &["diff", "--since=1970-01-01"]] {
        let early = gitcd(&clone, early);
        let said = String::from_utf8_lossy(&early.stderr).into_owned();
        assert!(!early.status.success() && early.stdout.is_empty(), "{early:?}");
        assert!(said.contains("at which this shallow clone begins") && said.contains("--unshallow"), "{said}");
    }
    let all = gitcd(&clone, &["diff", "--since=nothing", "--name-only"]);
    assert_eq!(all.status.code(), Some(1), "{all:?}");
    assert!(String::from_utf8_lossy(&all.stdout).contains(&format!("+ {}", KEYS[0])), "{all:?}");
}

#[tokio::test]
async fn what_is_gone_and_what_is_called_oddly_is_found() {
    let mut store = Store::start(&[]).await;
    let revision = store.put("/registry/a/b", "1").await;
    store.put("foo", "bar").await;
    store.committed().await;
    store.delete("/registry/a/b").await;
    let repository = store.committed().await;
    let listed = gitcd_json(repository.path(), &["at", &revision.to_string(), "list", "--json"]);
    assert_eq!(listed["keys"], json!(["/registry/a/b"]), "the prefix is recorded");
    assert_eq!(gitcd(repository.path(), &["show", "foo"]).stdout, b"bar");
}

#[tokio::test]
async fn a_branch_that_is_not_what_its_metadata_says_is_found_out() {
    let mut store = Store::start(&[]).await;
    for key in ["/registry/a/b", "/registry/a/c", "/registry/d"] {
        store.put(key, "{\"a\":1}\n").await;
    }
    let repository = store.committed().await;
    drop(store.server.terminate().await);
    let good = gitcd(repository.path(), &["verify"]);
    assert!(good.status.success() && good.stdout.starts_with(b"OK: revision 4, 3 keys"), "{good:?}");
    // Another data tree under the same metadata: one file missing, one extra, one not in its recorded form.
    let blob = |text: &str| repository.blob(text);
    let (odd, strange) = (blob("{ \"a\": [\n"), blob("x"));
    let below = format!("100644 blob {odd}\tb\n100644 blob {strange}\tz\n");
    let below = tree(&repository, &below);
    let d = repository.git(&["rev-parse", "main:d"]);
    let top = tree(&repository, &format!("040000 tree {below}\ta\n100644 blob {}\td\n", d.trim()));
    let data = repository.git(&["commit-tree", "-m", "other", &top]);
    let metadata = repository.git(&["rev-parse", "refs/gitcd/metadata/main^{tree}"]);
    let metadata = repository.git(&["commit-tree", "-p", data.trim(), "-m", "metadata at revision 4", metadata.trim()]);
    repository.git(&["update-ref", "refs/gitcd/metadata/main", metadata.trim()]);
    let verified = gitcd_json(repository.path(), &["verify", "--json", "--key-prefixes=/registry"]);
    let findings: Vec<_> = verified["findings"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    for words in [
        "a/b",
        "the metadata has the key \"/registry/a/c\"",
        "the metadata has no key for the file \"a/z\"",
        "does not follow",
    ] {
        assert!(findings.iter().any(|finding| finding.contains(words)), "{words}: {findings:#?}");
    }
    assert_eq!(gitcd(repository.path(), &["verify", "--key-prefixes=/registry"]).status.code(), Some(1));
    assert_eq!(gitcd(repository.path(), &["verify", "--branch=other"]).status.code(), Some(2));
}

fn tree(repository: &Repository, listing: &str) -> String {
    use std::io::Write as _;
    let mut command = Command::new("git");
    let path = repository.path().display().to_string();
    let mut child = command
        .args(["-C", &path, "mktree"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("git is installed");
    child.stdin.take().expect("stdin is piped").write_all(listing.as_bytes()).expect("git reads its input");
    let output = child.wait_with_output().expect("git exits");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("an object ID is UTF-8").trim().to_owned()
}
