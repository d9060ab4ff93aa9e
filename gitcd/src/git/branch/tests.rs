//! Branches against a model, stock Git, and interrupted moves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const DATA: &str = "refs/heads/main";
const METADATA: &str = "refs/gitcd/metadata/main";

fn config(repository: &Path) -> Config {
    Config {
        repository: repository.into(),
        name: "default".into(),
        data_reference: DATA.into(),
        metadata_reference: METADATA.into(),
        keys: KeySpace::new("/registry", ["/registry/events"]),
        committer_name: "gitcd <of test>".into(),
        committer_email: "gitcd@localhost\n".into(),
    }
}

/// Runs stock Git; gives what it printed.
fn git(repository: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(repository)
        .args(arguments)
        .output()
        .expect("git is installed");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "git {arguments:?}: {out}{err}");
    out.into_owned()
}

/// What `load` must give, by key.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, Record)>;

/// A branch in a folder of its own, and what it should contain.
struct Store {
    _folder: TempDir,
    path: PathBuf,
    branch: Branch,
    state: State,
    model: Model,
    data_commits: usize,
}

impl Store {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let path = folder.path().join("store.git");
        let state = State {
            revision: 1,
            compact_revision: 1,
            incarnation: "first".into(),
            leases: vec![(7, 60)],
        };
        let branch = Branch::create(config(&path), &state).expect("the folder is empty");
        Store {
            _folder: folder,
            path,
            branch,
            state,
            model: Model::new(),
            data_commits: 1,
        }
    }

    /// Puts (`Some`) and deletes (`None`) of one revision.
    fn commit(&mut self, changes: &[(&str, Option<&str>)]) {
        let changes: Vec<(&[u8], Option<&[u8]>)> = changes
            .iter()
            .map(|(key, value)| (key.as_bytes(), value.map(str::as_bytes)))
            .collect();
        self.commit_bytes(&changes);
    }

    fn commit_bytes(&mut self, changes: &[(&[u8], Option<&[u8]>)]) {
        self.state.revision += 1;
        let revision = self.state.revision;
        let mut last = BTreeMap::new();
        let mut is_data = false;
        for (key, value) in changes {
            let before = self.model.get(*key).map(|(_, record)| *record);
            let starts = key.starts_with(b"/registry/");
            let action = if let Some(value) = value {
                let record = Record {
                    create_revision: before.map_or(revision, |record| record.create_revision),
                    mod_revision: revision,
                    version: before.map_or(1, |record| record.version + 1),
                    lease: revision % 3,
                };
                self.model.insert(key.to_vec(), (value.to_vec(), record));
                is_data |= starts;
                Action::Put {
                    value: value.to_vec().into(),
                    record,
                }
            } else {
                is_data |= self.model.remove(*key).is_some() && starts;
                Action::Delete
            };
            last.insert(key.to_vec(), action);
        }
        let changes = last
            .into_iter()
            .map(|(key, action)| Change {
                key: key.into(),
                action,
            })
            .collect();
        let time = UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000 + revision as u64);
        let revisions = Revisions {
            first: revision,
            last: revision,
            time,
            clients: vec!["tester/1".into()],
            changes,
        };
        let before = self.branch.pending().commits;
        self.branch.commit(&revisions).expect("all keys fit");
        let made = self.branch.pending().commits - before;
        assert!(
            made <= usize::from(is_data),
            "a data commit without a changed data key"
        );
        self.data_commits += made;
    }

    fn flush(&mut self) -> Flushed {
        let state = self.state.clone();
        self.branch.flush(&state).expect("the disk is healthy")
    }

    fn reopen(&mut self) {
        self.branch = Branch::open(config(&self.path))
            .expect("the branch is intact")
            .expect("the branch exists");
    }

    fn loaded(&self) -> (State, Model) {
        let loaded = self
            .branch
            .load(self.branch.head().metadata)
            .expect("the head is intact");
        let count = loaded.keys.len();
        let keys: Model = loaded
            .keys
            .into_iter()
            .map(|key| (key.key.to_vec(), (key.value.to_vec(), key.record)))
            .collect();
        assert_eq!(keys.len(), count, "a key was loaded twice");
        (loaded.state, keys)
    }

    fn git(&self, arguments: &[&str]) -> String {
        git(&self.path, arguments)
    }

    fn reference(&self, name: &str) -> String {
        self.git(&["rev-parse", name]).trim().into()
    }

    /// Everything that must hold after a flush.
    fn check(&self) {
        let (state, keys) = self.loaded();
        assert_eq!(state, self.state);
        assert_eq!(keys, self.model);
        assert_eq!(self.branch.keys(), self.model.len());
        let fsck = self.git(&["fsck", "--full", "--strict"]);
        assert_eq!(fsck.trim(), "");
        assert_eq!(
            self.git(&["rev-list", "--count", DATA]).trim(),
            self.data_commits.to_string()
        );
        let objects = self.git(&["count-objects", "-v"]);
        assert!(
            objects.contains("count: 0\n") && objects.contains("garbage: 0\n"),
            "{objects}"
        );
        for pack in self.files("pack") {
            let pack = pack.to_str().expect("names of packs are ASCII");
            self.git(&["verify-pack", pack]);
            // The index must be byte for byte the one that Git makes.
            let index = self.path.join("made.idx");
            let index = index
                .to_str()
                .expect("the temporary folder has a plain name");
            self.git(&["index-pack", "--strict", "-o", index, pack]);
            assert_eq!(
                std::fs::read(index).unwrap(),
                std::fs::read(pack.replace(".pack", ".idx")).unwrap()
            );
            std::fs::remove_file(index).unwrap();
        }
    }

    fn files(&self, extension: &str) -> Vec<PathBuf> {
        let folder = std::fs::read_dir(self.path.join("objects/pack")).expect("there is a pack");
        let files = folder.map(|entry| entry.unwrap().path());
        files
            .filter(|path| path.extension().is_some_and(|found| found == extension))
            .collect()
    }
}

/// Bytes that a failed test shows as text.
#[derive(Clone, PartialEq, Eq)]
struct Text(Vec<u8>);

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

fn key() -> impl Strategy<Value = Text> {
    let names = prop::sample::select(vec!["a", "b", "pods", "", ".git", "c.d", "x y", "\u{e9}"]);
    prop_oneof![
        8 => proptest::collection::vec(names, 1..4).prop_map(|names| format!("/registry/{}", names.join("/")).into_bytes()),
        4 => (0..120u32).prop_map(|n| format!("/registry/things/ns{}/thing-{n}", n % 3).into_bytes()),
        1 => Just(b"compact_rev_key".to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 1..4),
        1 => (300..500usize).prop_map(|len| [b"/registry/long/".to_vec(), vec![b'n'; len]].concat()),
    ]
    .prop_map(Text)
}

fn value() -> impl Strategy<Value = Option<Text>> {
    prop_oneof![
        1 => Just(None),
        3 => (0..50u32, 0..9u32).prop_map(|(n, m)| {
            Some(format!(r#"{{"kind":"Pod","metadata":{{"name":"n{m}","resourceVersion":"{n}","labels":{{"a":"b","c":"d"}}}},"list":[{n},{m}]}}
"#).into_bytes())
        }),
        1 => proptest::collection::vec(any::<u8>(), 0..60).prop_map(Some),
    ]
    .prop_map(|value| value.map(Text))
}

#[derive(Debug, Clone)]
enum Step {
    Commit(Vec<(Text, Option<Text>)>),
    Flush,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => proptest::collection::vec((key(), value()), 1..5).prop_map(Step::Commit),
        1 => proptest::collection::vec((key(), value()), 50..120).prop_map(Step::Commit),
        1 => proptest::collection::vec(key().prop_map(|key| (key, None)), 50..120).prop_map(Step::Commit),
        2 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn a_branch_contains_what_was_put_into_it(steps in proptest::collection::vec(step(), 1..60)) {
        let mut store = Store::new();
        for step in steps {
            match step {
                Step::Commit(changes) => {
                    let changes: Vec<_> = changes.iter().map(|(key, value)| (&key.0[..], value.as_ref().map(|value| &value.0[..]))).collect();
                    store.commit_bytes(&changes);
                }
                Step::Flush => {
                    store.flush();
                    prop_assert_eq!(&store.loaded().1, &store.model);
                }
                Step::Reopen => {
                    store.flush();
                    store.reopen();
                }
            }
        }
        store.flush();
        store.check();
    }
}

#[test]
fn a_person_reads_values_and_history_with_stock_git() {
    let mut store = Store::new();
    store.commit(&[(
        "/registry/pods/default/nginx",
        Some("{\"kind\":\"Pod\",\"spec\":{}}\n"),
    )]);
    store.commit(&[(
        "/registry/pods/default/nginx",
        Some("{\"kind\":\"Pod\",\"spec\":{\"a\":1}}\n"),
    )]);
    store.commit(&[("compact_rev_key", Some("5"))]);
    store.commit(&[
        ("/registry/a/1", Some("1")),
        ("/registry/a/2", Some("2")),
        ("/registry/pods/default/nginx", None),
    ]);
    store.flush();
    store.check();
    assert_eq!(
        store.git(&["show", "main~1:pods/default/nginx"]),
        "{\n  \"kind\": \"Pod\",\n  \"spec\": {\n    \"a\": 1\n  }\n}\n"
    );
    let log = store.git(&["log", "--format=%s", DATA]);
    let subjects = [
        "create 2 a, delete pods/default/nginx",
        "update pods/default/nginx",
        "create pods/default/nginx",
        "start an empty store",
    ];
    assert_eq!(log.lines().collect::<Vec<_>>(), subjects);
    let last = store.git(&[
        "log",
        "-1",
        "--format=%an|%ae|%at|%(trailers:unfold,only)",
        DATA,
    ]);
    assert_eq!(
        last.trim(),
        "gitcd of test|gitcd@localhost|1700000005|Revision: 5\nClient: tester/1"
    );
    let metadata = store.git(&["log", "--first-parent", "-2", "--format=%s", METADATA]);
    assert_eq!(metadata, "metadata at revision 5\nmetadata at revision 1\n");
    let parents = store.git(&["log", "-1", "--format=%P", METADATA]);
    assert!(
        parents.trim().ends_with(&store.reference(DATA)),
        "{parents}"
    );
    assert_eq!(
        store.git(&["show", "refs/gitcd/metadata/main:local/compact_rev_key"]),
        "5"
    );
    assert_eq!(
        store.git(&["show", "refs/gitcd/metadata/main:leases"]),
        "0000000000000007 60\n"
    );
    assert_eq!(
        store.git(&["show", "refs/gitcd/metadata/main:state"]),
        "revision 5\ncompact_revision 1\nincarnation first\n"
    );
    assert_eq!(store.git(&["symbolic-ref", "HEAD"]).trim(), DATA);

    let clone = store.path.with_file_name("clone.git");
    store.git(&["clone", "-q", "--bare", ".", clone.to_str().unwrap()]);
    git(&clone, &["fsck", "--full", "--strict"]);
    assert_eq!(git(&clone, &["show", "main:a/2"]), "2");
}

#[test]
fn a_key_becomes_a_directory_and_a_file_again() {
    let mut store = Store::new();
    store.commit(&[("/registry/a", Some("value of a"))]);
    store.commit(&[("/registry/a/b/c", Some("below"))]);
    store.flush();
    assert_eq!(store.git(&["show", "main:a/%value"]), "value of a");
    store.commit(&[("/registry/a/b", Some("between"))]);
    store.flush();
    store.check();
    store.reopen();
    assert_eq!(store.git(&["show", "main:a/b/%value"]), "between");
    assert_eq!(
        store.git(&["log", "-1", "--format=%s", DATA]).trim(),
        "create a/b/%value"
    );
    store.commit(&[("/registry/a/b/c", None)]);
    store.flush();
    store.check();
    assert_eq!(store.git(&["show", "main:a/b"]), "between");
    store.commit(&[("/registry/a/b", None)]);
    store.flush();
    store.check();
    assert_eq!(store.git(&["show", "main:a"]), "value of a");
    store.commit(&[("/registry/a/b", Some("again"))]);
    store.commit(&[("/registry/a", None)]);
    store.flush();
    store.check();
    assert_eq!(
        store.git(&["ls-tree", "-r", "--name-only", "main"]),
        "a/b\n"
    );
    store.commit(&[("/registry/a/b", None)]);
    store.flush();
    store.check();
    assert_eq!(store.git(&["ls-tree", "-r", "--name-only", "main"]), "");
}

#[test]
fn ten_thousand_entries_take_deltas_not_copies() {
    let mut store = Store::new();
    let keys: Vec<String> = (0..10_000)
        .map(|n| format!("/registry/things/thing-{n:05}"))
        .collect();
    let all: Vec<(&str, Option<&str>)> = keys
        .iter()
        .map(|key| (key.as_str(), Some("{\"a\":1}")))
        .collect();
    store.commit(&all);
    store.flush();
    for round in 0..300 {
        let key = &keys[round * 7919 % keys.len()];
        let value = format!("{{\"a\":{round}}}");
        store.commit(&[(key, if round % 10 == 3 { None } else { Some(&value) })]);
    }
    let pending = store.branch.pending();
    let flushed = store.flush();
    store.check();
    // The directory is 390 KiB, and 300 versions of it must not take much more than one.
    assert!(pending.useful_bytes < 300 * 600, "{pending:?}");
    assert!(pending.overhead_bytes > pending.useful_bytes, "{pending:?}");
    let (estimate, written) = (
        pending.overhead_bytes + pending.useful_bytes,
        flushed.pack_bytes as usize,
    );
    assert!(
        estimate.abs_diff(written) < written / 4,
        "{estimate} bytes expected, {written} written"
    );
}

#[test]
fn a_move_that_a_crash_interrupted_is_completed() {
    let mut store = Store::new();
    store.commit(&[("/registry/a", Some("1"))]);
    store.flush();
    let (data, metadata) = (store.reference(DATA), store.reference(METADATA));
    let pair_file = store.path.join("gitcd/default/pair");
    let pair = std::fs::read(&pair_file).unwrap();
    let before = (store.state.clone(), store.model.clone());
    store.commit(&[("/registry/a", Some("2")), ("compact_rev_key", Some("1"))]);
    store.flush();
    let (new_data, new_metadata) = (store.reference(DATA), store.reference(METADATA));

    // The pack is written, no reference has moved.
    std::fs::write(&pair_file, &pair).unwrap();
    store.git(&["update-ref", METADATA, &metadata]);
    store.git(&["update-ref", DATA, &data]);
    store.reopen();
    assert_eq!(store.loaded(), before);

    // The metadata reference has moved.
    store.git(&["update-ref", METADATA, &new_metadata]);
    store.reopen();
    assert_eq!(store.reference(DATA), new_data);
    assert_eq!(store.loaded(), (store.state.clone(), store.model.clone()));

    // Both have, the pair is not recorded.
    std::fs::write(&pair_file, &pair).unwrap();
    store.reopen();
    assert_eq!(store.loaded(), (store.state.clone(), store.model.clone()));
    assert_ne!(std::fs::read(&pair_file).unwrap(), pair);
    store.commit(&[("/registry/b", Some("3"))]);
    store.flush();
    store.check();
}

#[test]
fn a_creation_that_a_crash_interrupted_is_completed() {
    let mut store = Store::new();
    let data = store.reference(DATA);
    store.git(&["update-ref", "-d", DATA]);
    std::fs::remove_file(store.path.join("gitcd/default/pair")).unwrap();
    store.reopen();
    assert_eq!(store.reference(DATA), data);

    // A pack without references is as good as nothing.
    store.git(&["update-ref", "-d", DATA]);
    store.git(&["update-ref", "-d", METADATA]);
    let vanished = Branch::open(config(&store.path)).unwrap_err();
    assert!(matches!(vanished, OpenError::Vanished { .. }), "{vanished}");
    std::fs::remove_file(store.path.join("gitcd/default/pair")).unwrap();
    assert!(Branch::open(config(&store.path)).unwrap().is_none());
    store.branch = Branch::create(config(&store.path), &store.state).unwrap();
    store.check();
}

#[test]
fn somebody_elses_commit_is_noticed_and_left_alone() {
    let mut store = Store::new();
    store.commit(&[("/registry/a", Some("1"))]);
    store.flush();
    let metadata = store.reference(METADATA);
    let foreign = store.git(&[
        "-c",
        "user.name=p",
        "-c",
        "user.email=p@localhost",
        "commit-tree",
        "-m",
        "by hand",
        "-p",
        DATA,
        "main^{tree}",
    ]);
    store.git(&["update-ref", DATA, foreign.trim()]);

    store.commit(&[("/registry/a", Some("2"))]);
    let state = store.state.clone();
    let error = store.branch.flush(&state).unwrap_err();
    assert!(matches!(error, FlushError::ForeignChange { .. }), "{error}");
    assert!(matches!(
        store.branch.flush(&state),
        Err(FlushError::Failed)
    ));
    assert_eq!(
        (store.reference(METADATA), store.reference(DATA)),
        (metadata, foreign.trim().to_owned())
    );

    let error = Branch::open(config(&store.path)).unwrap_err();
    assert!(
        matches!(error, OpenError::ForeignChange { .. })
            && error.to_string().contains(foreign.trim()),
        "{error}"
    );
    // Even one that looks like a half-done move with another recorded pair.
    std::fs::remove_file(store.path.join("gitcd/default/pair")).unwrap();
    assert!(matches!(
        Branch::open(config(&store.path)),
        Err(OpenError::ForeignChange { .. })
    ));
}

#[test]
fn what_does_not_fit_is_an_error_that_says_where() {
    let mut store = Store::new();
    store.commit(&[("/registry/a", Some("{}\n")), ("/registry/b/c", Some("2"))]);
    store.flush();
    let good = store.reference(METADATA);
    let edit = |path: &str, old: &str, new: &str| {
        let text = store.git(&["show", &format!("{good}:{path}")]);
        assert!(text.contains(old), "{text}");
        std::fs::write(store.path.join("edited"), text.replace(old, new)).unwrap();
        let blob = store.git(&["hash-object", "-w", "edited"]);
        std::fs::remove_file(store.path.join("edited")).unwrap();
        let listed = store.git(&["ls-tree", &good]);
        let changed: String = listed
            .lines()
            .map(|line| match line.split_once('\t') {
                Some((_, name)) if name == path => format!("100644 blob {}\t{name}\n", blob.trim()),
                _ => format!("{line}\n"),
            })
            .collect();
        std::fs::write(store.path.join("listed"), changed).unwrap();
        let tree = Command::new("git")
            .arg("-C")
            .arg(&store.path)
            .arg("mktree")
            .stdin(std::fs::File::open(store.path.join("listed")).unwrap())
            .output()
            .unwrap();
        let tree = String::from_utf8(tree.stdout).unwrap();
        let parents = store.git(&["log", "-1", "--format=%P", &good]);
        let mut arguments = vec![
            "-c",
            "user.name=p",
            "-c",
            "user.email=p@localhost",
            "commit-tree",
            "-m",
            "x",
            tree.trim(),
        ];
        parents
            .split_whitespace()
            .for_each(|parent| arguments.extend(["-p", parent]));
        store.git(&arguments).trim().to_owned()
    };
    let load = |commit: &str| {
        let error = store
            .branch
            .load(Oid::from_str(commit).unwrap())
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(&error.commit.to_string()) && text.contains("refs/"),
            "{text}"
        );
        text
    };
    for (path, old, new, said) in [
        ("format", "metadata 1", "metadata 2", "gitcd metadata 2"),
        ("state", "revision 2", "revision -", "line 1"),
        ("leases", " 60", " x", "line 1"),
        ("keys", "/registry/b/c 2", "/registry/b/c x", "line 2"),
        ("keys", "/registry/b/c 2", "/registry/b/d 2", "no such file"),
        (
            "keys",
            "/registry/b/c 2 2 1 2 r d\n",
            "",
            "\"b/c\": the metadata has no key",
        ),
        ("keys", "r d", "n d", "form 'n'"),
        ("keys", "/registry/a", "/other/a", "key prefix"),
    ] {
        let text = load(&edit(path, old, new));
        assert!(text.contains(said), "{path} {old:?} -> {new:?}: {text}");
    }
    assert!(load(&store.reference("main^{tree}")).contains("is a tree, not a commit"));
    assert!(load("c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00").contains("cannot read the object"));
    assert!(load(&store.reference("main~1")).contains("parents"));

    // The same in the place of the reference: opening fails as clearly.
    let blob = store.reference("main:b/c");
    std::fs::write(store.path.join(METADATA), format!("{blob}\n")).unwrap();
    let error = Branch::open(config(&store.path)).unwrap_err().to_string();
    assert!(
        error.contains("is a blob, not a commit") && error.contains(METADATA),
        "{error}"
    );
}

#[test]
fn history_that_a_person_made_is_adopted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    git(path, &["init", "-q", "-b", "main", "."]);
    std::fs::create_dir_all(path.join("pods/default")).unwrap();
    std::fs::write(path.join("pods/default/a"), "{\"kind\": \"Pod\"}\n").unwrap();
    std::fs::write(path.join("pods/default/b"), "kind: Pod\n").unwrap();
    let commit = || {
        git(path, &["add", "."]);
        git(
            path,
            &[
                "-c",
                "user.name=p",
                "-c",
                "user.email=p@localhost",
                "commit",
                "-qm",
                "by hand",
            ],
        );
    };
    commit();
    let missing = Branch::open(config(path)).unwrap_err();
    assert!(missing.to_string().contains("gitcd init"), "{missing}");
    let state = State {
        revision: 10,
        ..State::default()
    };
    let mut branch = Branch::adopt(config(path), &state, 1).unwrap();
    let keys = |branch: &Branch| {
        let loaded = branch.load(branch.head().metadata).unwrap();
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let mut keys: Vec<_> = loaded
            .keys
            .iter()
            .map(|key| (text(&key.key), text(&key.value), key.record))
            .collect();
        keys.sort_by(|a, b| a.0.cmp(&b.0));
        keys
    };
    let record = Record {
        create_revision: 10,
        mod_revision: 10,
        version: 1,
        lease: 0,
    };
    let expected = vec![
        (
            "/registry/pods/default/a".to_owned(),
            "{\"kind\":\"Pod\"}\n".to_owned(),
            record,
        ),
        (
            "/registry/pods/default/b".to_owned(),
            "kind: Pod\n".to_owned(),
            record,
        ),
    ];
    assert_eq!(keys(&branch), expected);
    let put = Change {
        key: "/registry/pods/default/a".into(),
        action: Action::Delete,
    };
    let revisions = Revisions {
        first: 11,
        last: 11,
        time: SystemTime::now(),
        clients: Vec::new(),
        changes: vec![put],
    };
    branch.commit(&revisions).unwrap();
    branch
        .flush(&State {
            revision: 11,
            ..State::default()
        })
        .unwrap();
    let branch = Branch::open(config(path)).unwrap().unwrap();
    assert_eq!(keys(&branch), expected[1..]);
    git(path, &["fsck", "--full", "--strict"]);
    assert!(matches!(
        Branch::adopt(config(path), &state, 1),
        Err(AdoptError::Exists { .. })
    ));

    git(path, &["update-ref", "-d", METADATA]);
    git(path, &["reset", "-q", "--hard"]);
    std::fs::write(path.join("pods/%zz"), "x").unwrap();
    commit();
    let error = Branch::adopt(config(path), &state, 1).unwrap_err();
    assert!(error.to_string().contains("pods/%zz"), "{error}");
}

#[test]
fn a_revision_that_cannot_be_committed_changes_nothing() {
    let mut store = Store::new();
    let put = |key: Vec<u8>| Change {
        key: key.into(),
        action: Action::Put {
            value: "1".into(),
            record: Record {
                create_revision: 2,
                mod_revision: 2,
                version: 1,
                lease: 0,
            },
        },
    };
    let mut commit = |key: Vec<u8>| {
        let changes = vec![put(b"/registry/good".to_vec()), put(key)];
        let revisions = Revisions {
            first: 2,
            last: 2,
            time: SystemTime::now(),
            clients: Vec::new(),
            changes,
        };
        store.branch.commit(&revisions)
    };
    assert!(matches!(
        commit(b"/registry/events/a".to_vec()),
        Err(CommitError::Ephemeral { .. })
    ));
    assert!(matches!(
        commit([b"/registry".to_vec(), b"/a".repeat(3000)].concat()),
        Err(CommitError::TooDeep { .. })
    ));
    store.flush();
    store.check();
}

#[test]
fn a_pack_that_cannot_be_written_leaves_the_branch_as_it_was() {
    let mut store = Store::new();
    store.commit(&[("/registry/a", Some("1"))]);
    store.flush();
    let before = store.loaded();
    store.commit(&[("/registry/a", Some("2"))]);
    // Not even root can make a file in what is no folder.
    let packs = store.path.join("objects/pack");
    let aside = store.path.join("objects/aside");
    std::fs::rename(&packs, &aside).unwrap();
    std::fs::write(&packs, "").unwrap();
    let state = store.state.clone();
    let error = store.branch.flush(&state).unwrap_err();
    assert!(matches!(error, FlushError::Pack(_)), "{error}");
    std::fs::remove_file(&packs).unwrap();
    std::fs::rename(&aside, &packs).unwrap();
    store.reopen();
    assert_eq!(store.loaded(), before);
}

#[test]
fn a_folder_with_something_else_in_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    let error = Branch::create(config(folder.path()), &State::default()).unwrap_err();
    assert!(
        error.to_string().contains("is not a Git repository"),
        "{error}"
    );
    assert!(!folder.path().join("HEAD").exists());
}
