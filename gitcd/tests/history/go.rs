//! Branches in the layout of the Go implementation of gitcd (`docs/design/go-gitcd.md`): recognised, converted, never misread.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use crate::existing::{Keys, Stream, bare, complaint, init, served};
use crate::support::{DATA, Kind, Launch, METADATA, Repository};
use crate::{gitcd, gitcd_json};

/// What the Go implementation stores for a key: create revision, mod revision, version, and the lease if any.
type Numbers = (i64, i64, i64, Option<i64>);

/// A branch with one data commit and one metadata commit for each revision.
struct Store {
    repository: Repository,
    revision: i64,
    keys: BTreeMap<Vec<u8>, (Vec<u8>, Numbers)>,
}

impl Store {
    fn new(path: &Path) -> Self {
        let store = Self { repository: bare(path), revision: 0, keys: BTreeMap::new() };
        store.write();
        store
    }

    fn put(&mut self, path: &[u8], value: &[u8], lease: Option<i64>) {
        self.revision += 1;
        let (create, version) = self.keys.get(path).map_or((self.revision, 0), |(_, known)| (known.0, known.2));
        self.keys.insert(path.to_vec(), (value.to_vec(), (create, self.revision, version + 1, lease)));
        self.write();
    }

    fn delete(&mut self, path: &[u8]) {
        self.revision += 1;
        self.keys.remove(path);
        self.write();
    }

    /// Commits all keys: the data as files, the metadata in directories of the same names.
    fn write(&self) {
        let (revision, mut stream) = (self.revision.to_string(), Stream::default());
        let from = |stream: &mut Stream, reference: &str| {
            if self.revision > 0 {
                stream.line(&format!("from {reference}^0"));
            }
            stream.line("deleteall");
        };
        from(stream.commit(DATA, &revision), DATA);
        for (path, (value, _)) in &self.keys {
            stream.file(path, value);
        }
        stream.import(&self.repository);
        let (data, mut stream) = (self.repository.reference(DATA), Stream::default());
        from(stream.commit(METADATA, &revision), METADATA);
        for (path, value) in [(".revision", &*revision), (".data", &*data), (".version", "v0.1.0-dev")] {
            stream.file(path.as_bytes(), value.as_bytes());
        }
        for (path, (_, (create, last, version, lease))) in &self.keys {
            let numbers =
                [("CREATE", Some(create)), ("MOD", Some(last)), ("VERSION", Some(version)), ("LEASE", lease.as_ref())];
            for (name, number) in numbers {
                if let Some(number) = number {
                    stream.file(&[path, &b"/"[..], name.as_bytes()].concat(), number.to_string().as_bytes());
                }
            }
        }
        stream.import(&self.repository);
    }

    fn expected(&self) -> Keys {
        let key = |(path, (value, (create, last, version, lease))): (&Vec<u8>, &(Vec<u8>, Numbers))| {
            let key = format!("/registry/{}", String::from_utf8_lossy(path));
            (key, ([*create, *last, *version, lease.unwrap_or_default()], value.clone()))
        };
        self.keys.iter().map(key).collect()
    }
}

#[tokio::test]
async fn what_the_go_implementation_wrote_is_refused_until_it_is_converted_and_then_all_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::new(&folder.path().join("repo.git"));
    store.put(b"pods/n/a", b"{\"kind\":\"Pod\"}", Some(0));
    store.put(b"pods/n/b", b"kind: Pod\n", None);
    store.put(b"pods/n/a", b"{\"kind\": \"Pod\",\n\"a\": 1}\n", Some(0));
    store.put(b"leases/x", b"k8s\0\x01\x02", Some(0x7587_1234_5678));
    store.put(b"gone", b"1", None);
    // A key named like a metadata file.
    store.put(b"pods/n/CREATE", b"", None);
    store.delete(b"gone");
    let repository = &store.repository;
    let references = [DATA, METADATA].map(|name| repository.reference(name));

    let mut server = Launch::new(Kind::Gitcd).folder(folder.path()).argument("--key-prefixes=/registry").spawn();
    let exit = server.exit().await;
    let words =
        ["was written by the Go implementation of gitcd", "gitcd init --repo=", "--key-prefixes=default=/registry"];
    assert!(words.iter().all(|word| exit.output.contains(word)), "{}", exit.output);
    for command in [&["log"][..], &["verify"], &["show", "pods/n/a"], &["diff", "--since=1h"]] {
        let said = complaint(&gitcd(repository.path(), command));
        assert!(
            said.contains("written by the Go implementation") && said.contains("`gitcd init`"),
            "{command:?}: {said}"
        );
    }
    assert_eq!(
        [DATA, METADATA].map(|name| repository.reference(name)),
        references,
        "a refused command must change nothing"
    );

    let output = init(repository);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("converted") && said.contains("4 keys, revision 7"), "{output:?}");
    assert_eq!(repository.reference(DATA), references[0], "the conversion must not change the data");
    assert_eq!(
        repository.reference(&format!("{METADATA}^1")),
        references[1],
        "the old metadata must stay in the history"
    );
    let verified = gitcd_json(repository.path(), &["verify", "--json", "--key-prefixes=/registry"]);
    assert_eq!((&verified["findings"], &verified["revision"]), (&json!([]), &json!(7)), "{verified:#}");
    let log = gitcd_json(repository.path(), &["log", "--json", "pods/n/a"]);
    let listed: Vec<_> = log.as_array().unwrap().iter().map(|one| (&one["what"], &one["revision"])).collect();
    assert_eq!(listed, [(&json!("update"), &json!(3)), (&json!("create"), &json!(null))], "{log:#}");
    assert!(String::from_utf8_lossy(&init(repository).stdout).contains("already exists"));
    assert_eq!(served(folder.path()).await, (store.expected(), 7));
    repository.fsck();
}

#[tokio::test]
async fn names_that_mean_other_keys_here_are_changed_and_ephemeral_keys_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::new(&folder.path().join("repo.git"));
    for path in [&b"a%25b"[..], b"a%b", b"k/%value", b"t~1", "ü".as_bytes(), b"plain"] {
        store.put(path, path, None);
    }
    let expected = store.expected();
    store.put(b"masterleases/10.0.0.1", b"x", Some(0));
    let repository = &store.repository;
    let args = ["init", "--key-prefixes=/registry", "--ephemeral-prefixes=/registry/masterleases"];
    let output = gitcd(repository.path(), &args);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("6 keys, revision 7") && said.contains("5 files were renamed, 1 ephemeral"), "{output:?}");
    let files = repository.git(&["ls-tree", "-r", "--name-only", DATA]);
    assert_eq!(
        files.lines().collect::<Vec<_>>(),
        ["a%2525b", "a%25b", "k/%25value", "plain", "t%7E1", "%C3%BC"]
            .map(str::to_owned)
            .into_iter()
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
    );
    let server = Launch::new(Kind::Gitcd).folder(folder.path()).argument("--key-prefixes=/registry");
    let server = server.argument("--ephemeral-prefixes=/registry/masterleases").start().await;
    let answer = server.client().await.range(crate::support::build::list("/registry/")).await.ok();
    let found: Vec<_> = answer.kvs.iter().map(|kv| String::from_utf8_lossy(&kv.key).into_owned()).collect();
    assert_eq!(found, expected.into_keys().collect::<Vec<_>>());
    repository.fsck();
}

#[tokio::test]
async fn commits_that_the_metadata_does_not_know_yet_are_taken_in_and_missing_numbers_made_up_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::new(&folder.path().join("repo.git"));
    store.put(b"a", b"1", None);
    store.put(b"b", b"1", None);
    let repository = &store.repository;
    // As the merges of the Go implementation leave it: `a` without create revision, `b` without metadata.
    let mut stream = Stream::default();
    stream.commit(METADATA, "3").line(&format!("from {METADATA}^0")).line("D a/CREATE").line("D b").import(repository);
    let mut stream = Stream::default();
    stream.commit(DATA, "by hand").line(&format!("from {DATA}^0")).file(b"c", b"1").import(repository);
    let head = repository.reference(DATA);
    assert!(init(repository).status.success());
    assert_eq!(repository.reference(DATA), head);
    let server = Launch::new(Kind::Gitcd).folder(folder.path()).argument("--key-prefixes=/registry").start().await;
    let client = server.client().await;
    let found = crate::support::eventually("the commit", async || {
        let answer = client.range(crate::support::build::list("/registry/")).await.ok();
        (answer.kvs.len() == 3).then_some(answer.kvs)
    })
    .await;
    let numbers = |at: usize| [found[at].create_revision, found[at].mod_revision, found[at].version];
    assert_eq!([numbers(0), numbers(1), numbers(2)], [[1, 1, 1], [2, 2, 1], [3, 3, 1]]);

    // Damaged metadata is reported and left unchanged.
    let damaged = bare(&folder.path().join("damaged.git"));
    let mut stream = Stream::default();
    stream.commit(DATA, "1").file(b"a", b"1").import(&damaged);
    for (data, number, words) in [
        ("nothing", "1", ".data names no commit"),
        (&*"1".repeat(40), "1", "fetch it"),
        (&*damaged.reference(DATA), "x", "MOD is \"x\""),
    ] {
        let mut stream = Stream::default();
        stream.commit(METADATA, "1").file(b".revision", b"1").file(b".data", data.as_bytes());
        stream.file(b"a/MOD", number.as_bytes()).import(&damaged);
        let metadata = damaged.reference(METADATA);
        let said = complaint(&init(&damaged));
        assert!(said.contains(words), "{words}: {said}");
        assert_eq!(damaged.reference(METADATA), metadata);
    }
}
