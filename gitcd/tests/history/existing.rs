//! `gitcd init` on data committed by hand or by another gitcd: the metadata is derived from the history.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use crate::support::build::{list, put};
use crate::support::{DATA, Kind, Launch, METADATA, Repository};
use crate::{gitcd, gitcd_json};

/// Creates an empty repository with stock Git.
pub(super) fn bare(path: &Path) -> Repository {
    std::fs::create_dir(path).expect("the temporary folder is writable");
    let repository = Repository::at(path);
    repository.git(&["init", "--quiet", "--bare", "--initial-branch=main"]);
    repository
}

/// Input for `git fast-import`.
#[derive(Default)]
pub(super) struct Stream(Vec<u8>);

impl Stream {
    /// Starts a commit, on top of the previous one of the reference if any; its files follow.
    pub(super) fn commit(&mut self, reference: &str, message: &str) -> &mut Self {
        let length = message.len();
        let head =
            format!("commit {reference}\ncommitter test <test@localhost> 1700000000 +0000\ndata {length}\n{message}\n");
        self.0.extend_from_slice(head.as_bytes());
        self
    }

    pub(super) fn merge(&mut self, with: &str) -> &mut Self {
        self.0.extend_from_slice(format!("merge {with}\n").as_bytes());
        self
    }

    pub(super) fn file(&mut self, path: &[u8], value: &[u8]) -> &mut Self {
        self.entry("100644", path, value)
    }

    pub(super) fn entry(&mut self, mode: &str, path: &[u8], value: &[u8]) -> &mut Self {
        let quoted = path.iter().map(|byte| format!("\\{byte:03o}")).collect::<Vec<_>>().concat();
        self.0.extend_from_slice(format!("M {mode} inline \"{quoted}\"\ndata {}\n", value.len()).as_bytes());
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
        self
    }

    pub(super) fn line(&mut self, line: &str) -> &mut Self {
        self.0.extend_from_slice(line.as_bytes());
        self.0.push(b'\n');
        self
    }

    pub(super) fn import(&self, repository: &Repository) {
        let mut command = Command::new("git");
        command.arg("-C").arg(repository.path()).args(["fast-import", "--quiet", "--force"]);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("git is installed");
        child.stdin.take().expect("stdin is piped").write_all(&self.0).expect("git reads its input");
        assert!(child.wait().expect("git exits").success());
    }
}

pub(super) fn init(repository: &Repository) -> Output {
    gitcd(repository.path(), &["init", "--key-prefixes=/registry"])
}

pub(super) fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Create revision, mod revision, version and lease of each key, with its value.
pub(super) type Keys = BTreeMap<String, ([i64; 4], Vec<u8>)>;

/// Serves the branch; returns all its keys and its revision, and checks that it accepts a write.
pub(super) async fn served(folder: &Path) -> (Keys, i64) {
    let server = Launch::new(Kind::Gitcd).folder(folder).argument("--key-prefixes=/registry").start().await;
    let client = server.client().await;
    let answer = client.range(list("/registry/")).await.ok();
    let keys = answer.kvs.into_iter().map(|kv| {
        let numbers = [kv.create_revision, kv.mod_revision, kv.version, kv.lease];
        (String::from_utf8_lossy(&kv.key).into_owned(), (numbers, kv.value.to_vec()))
    });
    let (keys, revision) = (keys.collect(), answer.header.expect("a response has a header").revision);
    let next = client.put(put("/registry/new", "1")).await.ok().header.expect("a response has a header").revision;
    assert_eq!(next, revision + 1, "the next write must get the next revision");
    (keys, revision)
}

const PATHS: [&str; 7] =
    ["pods/n/a", "pods/n/b", "pods/m/a", "configmaps/n/a", "configmaps/n/a/b", "x", "secrets/n/.s"];

/// Generates a history of `commits` commits; returns it with the expected keys and revision.
fn random(rng: &mut StdRng, commits: usize) -> (Stream, Keys, i64) {
    let (mut stream, mut keys, mut revision) = (Stream::default(), Keys::new(), 0);
    for number in 0..commits {
        stream.commit(DATA, &format!("by hand {number}"));
        let mut changed = BTreeMap::new();
        for _ in 0..rng.random_range(0..3) {
            let path = *PATHS.choose(rng).expect("PATHS is not empty");
            let is_there = keys.contains_key(path);
            changed.insert(path, (!is_there || rng.random_bool(0.7)).then(|| format!("value {number}")));
        }
        if changed.is_empty() {
            continue;
        }
        revision += 1;
        // Rewrites the whole tree: the path of a key changes when other keys appear below it.
        for (path, value) in changed {
            match value {
                Some(value) => {
                    let known = keys.entry(path.to_owned()).or_insert(([revision, 0, 0, 0], Vec::new()));
                    let [create, _, version, _] = known.0;
                    *known = ([create, revision, version + 1, 0], value.into_bytes());
                }
                None => drop(keys.remove(path)),
            }
        }
        stream.line("deleteall");
        for (path, (_, value)) in &keys {
            let is_directory = keys.keys().any(|other| other.starts_with(&format!("{path}/")));
            let path = if is_directory { format!("{path}/%value") } else { path.clone() };
            stream.file(path.as_bytes(), value);
        }
    }
    let keys = keys.into_iter().map(|(path, key)| (format!("/registry/{path}"), key));
    (stream, keys.collect(), revision.max(1))
}

#[tokio::test]
async fn every_key_has_the_revisions_that_follow_from_its_commits() {
    let seed = rand::rng().random();
    let mut rng = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    let repository = bare(&folder.path().join("repo.git"));
    let (stream, keys, revision) = random(&mut rng, 120);
    stream.import(&repository);
    let head = repository.reference(DATA);
    let output = init(&repository);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let count = keys.len();
    let words = format!("{count} keys, 120 commits, revision {revision} (");
    assert!(output.status.success() && said.contains(&words), "seed {seed}: {output:?}");
    assert_eq!(repository.reference(DATA), head, "the data must not change");
    assert_eq!(
        repository.git(&["rev-list", "--count", METADATA, &format!("^{DATA}")]).trim(),
        "1",
        "one metadata commit for the whole history"
    );
    let verified = gitcd_json(repository.path(), &["verify", "--json"]);
    assert_eq!(verified["findings"], serde_json::json!([]), "seed {seed}: {verified:#}");
    for (key, ([_, last, version, _], _)) in &keys {
        let log = gitcd_json(repository.path(), &["log", "--json", key]);
        assert_eq!(
            (&log[0]["revision"], &log[0]["version"]),
            (&(*last).into(), &(*version).into()),
            "seed {seed}: {log:#}"
        );
        let created = log.as_array().unwrap().iter().position(|one| one["what"] == "create").unwrap();
        assert_eq!(created as i64 + 1, *version, "seed {seed}: {log:#}");
    }
    assert_eq!(served(folder.path()).await, (keys, revision), "seed {seed}");
    repository.fsck();
}

#[tokio::test]
async fn merges_empty_trees_and_what_was_no_key_once_are_taken_as_they_come() {
    let folder = tempfile::tempdir().unwrap();
    let repository = bare(&folder.path().join("repo.git"));
    let mut stream = Stream::default();
    stream.commit(DATA, "nothing yet");
    stream.commit(DATA, "a").file(b"a", b"1").entry("120000", b"link", b"a").file(b"b~", b"1");
    stream.commit("refs/heads/side", "side").line(&format!("from {DATA}")).file(b"s", b"1").file(b"a", b"2");
    stream.commit(DATA, "no links").line("D link").line("D \"b~\"").file(b"m", b"1");
    stream.commit(DATA, "together").merge("refs/heads/side").file(b"s", b"1").file(b"a", b"2");
    stream.commit(DATA, "for Git alone").file(b"a", b"2");
    stream.import(&repository);
    assert!(init(&repository).status.success());
    let key = |numbers: [i64; 3], value: &str| ([numbers[0], numbers[1], numbers[2], 0], value.as_bytes().to_vec());
    let expected = [("a", key([1, 3, 2], "2")), ("m", key([2, 2, 1], "1")), ("s", key([3, 3, 1], "1"))];
    let expected: Keys = expected.into_iter().map(|(name, key)| (format!("/registry/{name}"), key)).collect();
    assert_eq!(served(folder.path()).await, (expected, 3));

    let empty = tempfile::tempdir().unwrap();
    let repository = bare(&empty.path().join("repo.git"));
    let mut stream = Stream::default();
    stream.commit(DATA, "a").file(b"a", b"1");
    stream.commit(DATA, "gone").line("deleteall");
    stream.import(&repository);
    assert!(init(&repository).status.success());
    assert_eq!(served(empty.path()).await, (Keys::new(), 2));
}

#[test]
fn what_was_before_init_is_not_taken_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let repository = bare(&folder.path().join("repo.git"));
    let mut stream = Stream::default();
    for value in [b"1", b"2", b"3"] {
        stream.commit(DATA, "by hand").file(b"a", value);
    }
    stream.import(&repository);
    assert!(init(&repository).status.success());
    let asked = [&["diff", "--since=2"][..], &["diff", "--since=1999-01-01"], &["at", "2", "get", "a"]];
    for (arguments, code) in asked.into_iter().zip([2, 2, 1]) {
        let output = gitcd(repository.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(code), true), "{arguments:?}: {output:?}");
        assert!(said.contains("is before revision 3, at which `gitcd init` took over the history"), "{said}");
    }
    let same = gitcd(repository.path(), &["diff", "--since=3"]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    let all = gitcd_json(repository.path(), &["diff", "--since=nothing", "--json"]);
    assert_eq!((&all["from"], &all["to"]), (&json!(0), &json!(3)), "{all:#}");
    let keys: Vec<_> = all["keys"].as_array().unwrap().iter().map(|key| (&key["key"], &key["what"])).collect();
    assert_eq!(keys, [(&json!("/registry/a"), &json!("create"))]);
}

/// Mode, path and value of a file, and the expected words of the error.
type Case<'c> = (&'c str, &'c [u8], &'c [u8], &'c [&'c str]);

#[test]
fn files_that_cannot_be_keys_are_named_and_nothing_changes() {
    let folder = tempfile::tempdir().unwrap();
    let conflict = b"apiVersion: v1\n<<<<<<< ours\nkind: ConfigMap\n=======\nkind: Secret\n>>>>>>> theirs\n";
    let cases: [Case<'_>; 7] = [
        ("120000", b"pods/link", b"a", &["pods/link: it is neither a file nor a directory"]),
        ("100644", b"pods/r\xe9sum\xe9", b"1", &["pods/r\\xe9sum\\xe9", "it should be \\\"pods/r%E9sum%E9\\\""]),
        ("100644", b"pods/a~", b"1", &["pods/a~", "%7E"]),
        ("100644", b"pods/%zz", b"1", &["a percent sign is written %25"]),
        ("100644", b"configmaps/n/a", conflict, &["configmaps/n/a: line ", "it is not well-formed YAML"]),
        (
            "100644",
            b"configmaps/n/b",
            b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
            &["the file's name is \"b\""],
        ),
        ("100644", b"events/e", b"1", &["events/e: its key is ephemeral here"]),
    ];
    for (number, (mode, path, value, words)) in cases.into_iter().enumerate() {
        let repository = bare(&folder.path().join(format!("{number}.git")));
        let mut stream = Stream::default();
        stream.commit(DATA, "by hand").file(b"a", b"1").entry(mode, path, value).import(&repository);
        let args = ["init", "--key-prefixes=/registry", "--ephemeral-prefixes=/registry/events"];
        let said = complaint(&gitcd(repository.path(), &args));
        assert!(
            said.contains("a file of refs/heads/main (commit ") && said.contains("change, rename or remove it"),
            "{said}"
        );
        let plain = said.replace("\\\\", "\\");
        assert!(words.iter().all(|word| plain.contains(&word.replace("\\\"", "\""))), "{words:?}: {said}");
        assert_eq!(repository.git(&["for-each-ref", "--format=%(refname)"]).trim(), DATA);
        // Once it is removed in the last commit, earlier commits with it do not matter.
        let mut stream = Stream::default();
        let from = format!("from {DATA}^0");
        stream.commit(DATA, "without").line(&from).line("deleteall").file(b"a", b"1").import(&repository);
        let output = gitcd(repository.path(), &args);
        assert!(output.status.success(), "{output:?}");
    }
    let repository = bare(&folder.path().join("submodule.git"));
    let mut stream = Stream::default();
    stream.commit(DATA, "by hand").file(b"a", b"1").line(&format!("M 160000 {} sub", "1".repeat(40)));
    for number in 0..20 {
        stream.entry("120000", format!("link{number}").as_bytes(), b"a");
    }
    stream.import(&repository);
    let said = complaint(&init(&repository));
    assert!(said.contains("21 files of refs/heads/main") && said.contains("and 11 more"), "{said}");
}

/// Starts `gitcd init` and kills it after a while.
fn killed(repository: &Path, moment: Duration) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
    command.args(["init", "--key-prefixes=/registry"]).env("GITCD_REPO", repository);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("gitcd can be started");
    std::thread::sleep(moment.min(Duration::from_secs(20)));
    child.kill().expect("the child is ours");
    child.wait().expect("a killed child exits");
}

#[test]
fn an_init_of_nothing_that_is_killed_at_any_moment_is_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let started = std::time::Instant::now();
    assert!(gitcd(&folder.path().join("good.git"), &["init"]).status.success());
    let takes = started.elapsed();
    let mut rng = StdRng::seed_from_u64(7);
    for round in 0..20 {
        let path = folder.path().join(format!("{round}.git"));
        let moment = takes * rng.random_range(0..110) / 100;
        killed(&path, moment);
        let again = gitcd(&path, &["init", "--key-prefixes=/registry"]);
        assert!(again.status.success(), "after {moment:?} of {takes:?}: {again:?}");
        let repository = Repository::at(&path);
        assert!(gitcd(&path, &["verify"]).status.success());
        repository.fsck();
    }
}

#[test]
fn an_init_that_is_killed_at_any_moment_is_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let whole = bare(&folder.path().join("whole.git"));
    let mut rng = StdRng::seed_from_u64(7);
    random(&mut rng, 1500).0.import(&whole);
    let copy = |name: &str| {
        let path = folder.path().join(name);
        whole.git(&["clone", "--quiet", "--bare", ".", &path.display().to_string()]);
        Repository::at(&path)
    };
    let keys = |repository: &Repository| repository.reference(&format!("{METADATA}:keys"));
    let good = copy("good.git");
    let started = std::time::Instant::now();
    assert!(init(&good).status.success());
    let takes = started.elapsed();
    for round in 0..12_u32 {
        let repository = copy(&format!("{round}.git"));
        // The last steps are short, so most kills aim at them.
        let until = if round % 3 == 0 { 0..100 } else { 80..110 };
        let moment = takes * rng.random_range(until) / 100;
        killed(repository.path(), moment);
        let again = init(&repository);
        assert!(again.status.success(), "after {moment:?} of {takes:?}: {again:?}");
        assert_eq!(keys(&repository), keys(&good), "after {moment:?} of {takes:?}");
        assert_eq!(repository.reference(DATA), whole.reference(DATA));
        let verified = gitcd(repository.path(), &["verify"]);
        assert!(verified.status.success(), "{verified:?}");
        repository.fsck();
    }
}

#[tokio::test]
async fn a_branch_begins_at_the_commit_of_an_annotated_tag() {
    let folder = tempfile::tempdir().unwrap();
    let repository = bare(&folder.path().join("repo.git"));
    let mut stream = Stream::default();
    stream.commit(DATA, "one").file(b"k/a", b"one").import(&repository);
    repository.git(&["tag", "-a", "-m", "one", "one", DATA]);
    let place = "--data-reference-names=default=refs/tags/one";
    let made = gitcd(repository.path(), &["init", "--key-prefixes=/registry", place]);
    assert!(made.status.success(), "{made:?}");
    assert_eq!(
        repository.reference("refs/tags/one"),
        repository.reference(DATA),
        "the branch must start at the tagged commit"
    );
    let launch = Launch::new(Kind::Gitcd).folder(folder.path()).argument("--key-prefixes=/registry").argument(place);
    let mut server = launch.start().await;
    let client = server.client().await;
    let found = client.range(crate::support::build::get("/registry/k/a")).await.ok();
    assert_eq!(found.kvs[0].value, &b"one"[..]);
    client.put(put("/registry/k/a", "two")).await.ok();
    server.terminate().await;
    assert_eq!(repository.git(&["show", "refs/tags/one:k/a"]), "two");
}
