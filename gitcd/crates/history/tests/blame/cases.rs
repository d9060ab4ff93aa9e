//! Cases that a rule or a document names.

use std::collections::BTreeMap;
use std::process::Command;

use git2::Oid;
use gitcd_core::keyspace::KeySpace;
use gitcd_history::History;
use gitcd_history::blame::{Blame, BlameError, Options};
use gitcd_history::versions::ChangeKind;
use gitcd_history::when::When;
use gitcd_merge::Policy;
use gitcd_merge::value::Syntax;
use gitcd_repo::branch::Config;

use crate::world::World;

const POD: &str = "/registry/pods/n/a";
const MAP: &str = "/registry/configmaps/n/a";

/// Returns the writer of each field by path.
fn writers(blame: &Blame) -> BTreeMap<String, Oid> {
    let writer = |origin: usize| blame.origins[origin].commit.oid;
    blame.fields.iter().map(|field| (field.path.to_string(), writer(field.origin))).collect()
}

fn map(uid: &str, data: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a","namespace":"n","uid":"{uid}"}},"data":{data}}}"#
    )
}

fn pod(containers: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"a","namespace":"n","uid":"u"}},"spec":{{"containers":{containers}}}}}"#
    )
}

fn put(world: &mut World, branch: usize, key: &str, value: &str) -> Oid {
    let commit = world.put(branch, &[(key, Some(value.as_bytes()))]);
    world.flush(branch);
    commit
}

fn field(path: &str) -> Options {
    Options { field: Some(path.parse().expect("it is a path")), ..Options::default() }
}

/// Lets a second branch start from the first.
fn forked(world: &mut World, key: &str) {
    let theirs = world.tip(0);
    world.merge(1, theirs, Policy::Later, &[key], true);
}

#[test]
fn items_of_a_list_keep_their_writers_when_they_move() {
    let mut world = World::new(1);
    let first = put(&mut world, 0, POD, &pod(r#"[{"name":"a","image":"1"},{"name":"b","image":"1"}]"#));
    let second = put(
        &mut world,
        0,
        POD,
        &pod(r#"[{"name":"c","image":"1"},{"name":"b","image":"1"},{"image":"2","name":"a"}]"#),
    );
    let blame = world.blame(0, POD);
    let writers = writers(&blame);
    assert_eq!(writers["spec.containers[name=a].name"], first);
    assert_eq!(writers["spec.containers[name=b].image"], first);
    assert_eq!(writers["spec.containers[name=a].image"], second);
    assert_eq!(writers["spec.containers[name=c].image"], second);
    assert_eq!(writers["apiVersion"], first);
    let origin = &blame.origins[blame.fields[0].origin];
    let revisions = origin.revisions.expect("this branch made the commit");
    assert_eq!((revisions.first, revisions.last, origin.branch.as_deref()), (2, 2, Some("b0")));
    assert_eq!(origin.who.text("gitcd"), "store0 (kube-apiserver (test))");
}

#[test]
fn a_restored_value_is_a_later_write() {
    let mut world = World::new(1);
    let values = [r#"{"x":"1","y":"1"}"#, r#"{"x":"2","y":"1"}"#, r#"{"x":"1","y":"1"}"#];
    let commits = values.map(|data| put(&mut world, 0, MAP, &map("u", data)));
    let writers = writers(&world.blame(0, MAP));
    assert_eq!((writers["data.x"], writers["data.y"]), (commits[2], commits[0]));
}

#[test]
fn an_object_that_was_created_again_starts_anew_even_without_a_visible_deletion() {
    for is_deletion_visible in [true, false] {
        let mut world = World::new(1);
        put(&mut world, 0, MAP, &map("old", r#"{"x":"1"}"#));
        if is_deletion_visible {
            world.put(0, &[(MAP, None)]);
            world.flush(0);
        }
        let created = put(&mut world, 0, MAP, &map("new", r#"{"x":"1"}"#));
        let changed = put(&mut world, 0, MAP, &map("new", r#"{"x":"1","y":"1"}"#));
        let writers = writers(&world.blame(0, MAP));
        let late: Vec<_> = writers.iter().filter(|(_, writer)| **writer != created).collect();
        assert_eq!(late, [(&"data.y".to_owned(), &changed)]);
    }
}

#[test]
fn no_value_of_a_secret_is_returned_unless_requested() {
    const KEY: &str = "/registry/secrets/n/a";
    let mut world = World::new(1);
    let secret = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","uid":"u","annotations":{"copy":"hunter2"}},"data":{"p":"hunter2"}}"#;
    put(&mut world, 0, KEY, secret);
    let shown = |options: &Options| {
        let blame = world.blame_with(0, KEY, When::Now, options).expect("the key exists");
        let value = |at: usize| {
            blame.fields[at].value.as_ref().map(|value| String::from_utf8(value.write(Syntax::Json)).expect("text"))
        };
        let fields: Vec<_> = (0..blame.fields.len()).map(|at| (blame.fields[at].path.to_string(), value(at))).collect();
        (fields, format!("{blame:?}"))
    };
    let (fields, debug) = shown(&Options::default());
    assert!(!debug.contains("hunter2"), "{debug}");
    assert!(fields.contains(&("data.p".into(), None)) && fields.contains(&("metadata.annotations.copy".into(), None)));
    assert!(fields.contains(&("metadata.name".into(), Some("\"a\"".into()))), "{fields:?}");
    let open = Options { show_secrets: true, ..Options::default() };
    assert!(shown(&open).0.contains(&("data.p".into(), Some("\"hunter2\"".into()))));
    // Of kinds that the operator lists, not even the names of fields are returned.
    let vault = r#"{"apiVersion":"v1","kind":"Vault","metadata":{"name":"a","uid":"u"},"spec":{"hunter2":[{"name":"hunter2"}]}}"#;
    let key = "/registry/vaults/n/a";
    put(&mut world, 0, key, vault);
    let options = Options { secret_kinds: "Vault".parse().expect("it is a kind"), ..Options::default() };
    let blame = world.blame_with(0, key, When::Now, &options).expect("the key exists");
    assert!(
        !format!("{blame:?}").contains("hunter2") && blame.fields.iter().any(|field| field.path.to_string() == "spec")
    );
    // Nor parts of a field whose name is not plain, nor what metadata.managedFields repeats of the content.
    let vault = r#"{"apiVersion":"v1","kind":"Vault","metadata":{"name":"a","uid":"u","managedFields":[{"manager":"m","operation":"Update",
        "fieldsV1":{"f:spec":{"f:hunter2":{"v:\"hunter2\"":{},"k:{\"name\":\"hunter2\"}":{}}}}}]},"my.spec":{"hunter2":{},"l":[{"name":"hunter2"}]}}"#;
    put(&mut world, 0, key, vault);
    for path in ["metadata", "metadata.managedFields", "[\"my.spec\"]"] {
        let options = Options { field: field(path).field, ..options.clone() };
        let blame = world.blame_with(0, key, When::Now, &options).expect("the key exists");
        assert!(!blame.fields.is_empty() && !format!("{blame:?}").contains("hunter2"), "{blame:?}");
    }
    // Nor the keys of items, which are values.
    let secret = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b","uid":"u"},"extra":[{"name":"hunter2"},{"name":"hunter3"}]}"#;
    put(&mut world, 0, "/registry/secrets/n/b", secret);
    let options = Options { field: field("extra.x").field, ..options };
    let said = world.blame_with(0, "/registry/secrets/n/b", When::Now, &options).expect_err("there is no such field");
    assert!(said.to_string().contains("there is no field extra.x") && !said.to_string().contains("hunter"), "{said}");
    let options = Options { field: field("spec.x").field, ..options };
    let said = world.blame_with(0, key, When::Now, &options).expect_err("there is no such field").to_string();
    assert!(said.contains("there is no field spec.x") && !said.contains("hunter2"), "{said}");
}

#[test]
fn a_missing_key_or_field_is_an_error_with_what_exists() {
    let mut world = World::new(1);
    put(&mut world, 0, POD, &pod(r#"[{"name":"a","image":"1"}]"#));
    let said = |key: &str, options: &Options| world.blame_with(0, key, When::Now, options).expect_err("it is missing");
    assert!(matches!(said("/registry/pods/n/b", &Options::default()), BlameError::NoKey { revision: 2 }));
    for (path, near) in [
        ("spec.replicas", "there is no field spec.replicas: spec has containers"),
        ("stats", "the value has apiVersion, kind, metadata, spec"),
        ("spec.containers[name=b].image", "spec.containers has [name=a]"),
        ("metadata.name.x", "metadata.name has no fields"),
    ] {
        let said = said(POD, &field(path)).to_string();
        assert!(said.contains(near), "{path}: {said}");
    }
    let selected = |path: &str| {
        let blame = world.blame_with(0, POD, When::Now, &field(path)).expect("the field exists");
        let lines = blame.lines.iter().map(|line| line.label.clone()).collect::<Vec<_>>();
        (blame.fields.len(), lines)
    };
    assert_eq!(selected("spec.containers[a].image"), (1, vec!["image:".to_owned()]));
    assert_eq!(selected("spec"), (2, ["spec:", "  containers:", "  - name:", "    image:"].map(String::from).to_vec()));
}

#[test]
fn a_value_that_is_no_object_is_one_field() {
    const KEY: &str = "/registry/masterleases/a";
    let mut world = World::new(1);
    put(&mut world, 0, KEY, "one");
    let second = put(&mut world, 0, KEY, "two");
    put(&mut world, 0, MAP, &map("u", "{}"));
    let blame = world.blame(0, KEY);
    assert_eq!(writers(&blame), BTreeMap::from([(String::new(), second)]));
    assert_eq!(blame.lines[0].label, "");
    // A key outside the prefix is in the metadata: its commits are those of flushes.
    let (first, local) = (put(&mut world, 0, "/elsewhere/a", "{\"a\":1,\"b\":1}"), "/elsewhere/a");
    put(&mut world, 0, local, "{\"a\":1,\"b\":2}");
    let blame = world.blame(0, local);
    let revision = |at: usize| blame.origins[blame.fields[at].origin].revisions.map(|own| own.last);
    assert_eq!((revision(0), revision(1), world.tip(0)), (Some(5), Some(6), first), "its commits are no data commits");
}

#[test]
fn fields_of_a_persons_yaml_belong_to_the_person() {
    let mut world = World::new(1);
    let first = put(&mut world, 0, MAP, &map("u", r#"{"x":"1","z":"1"}"#));
    let yaml = "# prices\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: n, uid: u}\ndata:\n  z: '1'\n  x: \"2\" # dear\n";
    let commit = world.person(0, ["Ann", "Bob"], (MAP, Some(yaml.as_bytes())));
    // Fast-forward: the branch moves to the commit.
    assert_eq!(world.merge(0, commit, Policy::Later, &[MAP], true), commit);
    let blame = world.blame(0, MAP);
    let found = writers(&blame);
    assert_eq!((found["data.x"], found["data.z"], found["kind"]), (commit, first, first));
    let of = |path: &str| {
        let field = blame.fields.iter().find(|field| field.path.to_string() == path).expect("the field exists");
        &blame.origins[field.origin]
    };
    assert_eq!(of("data.x").who.text("gitcd"), "Ann, committed by Bob");
    assert_eq!(of("data.x").revisions.map(|own| own.last), Some(3), "the revision that the change got here");
    assert!(!of("data.x").is_own && of("data.z").is_own);
}

#[test]
fn values_of_both_sides_of_a_merge_keep_their_writers() {
    let mut world = World::new(2);
    let first = put(&mut world, 0, MAP, &map("u", r#"{"x":"0","y":"0","z":"0","w":"0"}"#));
    forked(&mut world, MAP);
    let ours = put(&mut world, 0, MAP, &map("u", r#"{"x":"1","y":"0","z":"1","w":"0"}"#));
    let theirs = put(&mut world, 1, MAP, &map("u", r#"{"x":"0","y":"1","z":"1","w":"0"}"#));
    let merge = world.merge(0, theirs, Policy::Later, &[MAP], false);
    assert_ne!(merge, theirs);
    let blame = world.blame(0, MAP);
    let found = writers(&blame);
    assert_eq!((found["data.x"], found["data.y"], found["data.w"]), (ours, theirs, first));
    // Both set the same value: the later one, and the other one beside it.
    let z = blame.fields.iter().find(|field| field.path.to_string() == "data.z").expect("the field exists");
    assert_eq!((found["data.z"], &z.also[..]), (theirs, &[ours][..]));
    let of_theirs = blame.origins.iter().find(|origin| origin.commit.oid == theirs).expect("it wrote a field");
    assert_eq!((of_theirs.branch.as_deref(), of_theirs.is_own), (Some("b1"), false));
}

#[test]
fn a_value_that_one_side_changed_and_restored_is_of_that_side() {
    for editor in [0, 1] {
        let mut world = World::new(2);
        put(&mut world, 0, MAP, &map("u", r#"{"x":"0"}"#));
        forked(&mut world, MAP);
        put(&mut world, editor, MAP, &map("u", r#"{"x":"1"}"#));
        let restored = put(&mut world, editor, MAP, &map("u", r#"{"x":"0"}"#));
        put(&mut world, 1 - editor, "/registry/configmaps/n/other", "text");
        let theirs = world.tip(1);
        world.merge(0, theirs, Policy::Later, &[MAP, "/registry/configmaps/n/other"], false);
        // The merge has the value that ours had before, so the metadata does not know of a change.
        assert_eq!(writers(&world.blame(0, MAP))["data.x"], restored, "editor {editor}");
    }
}

/// A shallow clone of a repository.
struct ShallowClone {
    folder: tempfile::TempDir,
    url: String,
}

impl ShallowClone {
    fn new(world: &World) -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let clone = Self { folder, url: format!("file://{}", world.path().display()) };
        clone.git(&["init", "-q", "--bare", "."]);
        clone
    }

    fn git(&self, arguments: &[&str]) {
        let mut command = Command::new("git");
        command.arg("-C").arg(self.folder.path()).args(arguments).env("GIT_CONFIG_GLOBAL", "/dev/null");
        let output = command.output().expect("git is installed");
        assert!(output.status.success(), "git {arguments:?}: {output:?}");
    }

    fn fetch(&self, depth: usize, references: &[&str]) {
        let depth = format!("--depth={depth}");
        self.git(&[&["-c", "safe.directory=*", "fetch", "-q", &depth, &self.url], references].concat());
    }

    fn history(&self) -> History {
        let config = Config {
            data_reference: "refs/heads/b0".into(),
            metadata_reference: "refs/gitcd/metadata/b0".into(),
            keys: KeySpace::new("/registry", [""; 0]),
            ..Config::named(self.folder.path().to_owned(), "b0")
        };
        History::open(config, false).expect("the clone has the branch")
    }

    fn blame(&self) -> Blame {
        let history = self.history();
        let moment = history.at(When::Now).expect("the clone has its last state");
        history.blame(&moment, MAP.as_bytes(), &Options::default()).expect("the key exists")
    }
}

#[test]
fn a_shallow_clone_that_lacks_one_parent_of_a_merge_ends_at_the_merge() {
    let mut world = World::new(2);
    put(&mut world, 0, MAP, &map("u", r#"{"x":"0","y":"0"}"#));
    forked(&mut world, MAP);
    put(&mut world, 0, MAP, &map("u", r#"{"x":"1","y":"0"}"#));
    let theirs = put(&mut world, 1, MAP, &map("u", r#"{"x":"0","y":"1"}"#));
    let merge = world.merge(0, theirs, Policy::Later, &[MAP], false);
    let clone = ShallowClone::new(&world);
    clone.fetch(1, &["+refs/heads/b0:refs/heads/b0", "+refs/gitcd/metadata/b0:refs/gitcd/metadata/b0"]);
    clone.fetch(1, &["+refs/heads/b1:refs/heads/b1"]);
    let blame = clone.blame();
    let of = |path: &str| {
        let field = blame.fields.iter().find(|field| field.path.to_string() == path).expect("the field exists");
        let origin = &blame.origins[field.origin];
        (origin.commit.oid, origin.is_boundary)
    };
    assert_eq!((of("data.x"), of("data.y"), of("kind")), ((merge, true), (theirs, true), (theirs, true)));
    // The parent that is here is not that of this branch.
    let history = clone.history();
    let commits = history.commits_after(None).expect("the clone can be read");
    let [oldest] = &commits[..] else { panic!("one commit: {commits:?}") };
    assert!(oldest.commit.oid == merge && history.is_oldest(oldest).expect("the clone can be read"));
    assert!(history.changes_of(oldest).expect("the clone can be read").keys.is_empty());
}

#[test]
fn a_shallow_clone_ends_at_commits_marked_as_boundaries() {
    let mut world = World::new(1);
    put(&mut world, 0, MAP, &map("u", r#"{"x":"1"}"#));
    put(&mut world, 0, MAP, &map("u", r#"{"x":"1","y":"1"}"#));
    let third = put(&mut world, 0, MAP, &map("u", r#"{"x":"1","y":"1","z":"1"}"#));
    let clone = ShallowClone::new(&world);
    clone.fetch(2, &["+refs/heads/*:refs/heads/*", "+refs/gitcd/*:refs/gitcd/*"]);
    let blame = clone.blame();
    let of = |path: &str| {
        let field = blame.fields.iter().find(|field| field.path.to_string() == path).expect("the field exists");
        let origin = &blame.origins[field.origin];
        (origin.is_boundary, origin.commit.oid == third)
    };
    assert_eq!((of("data.z"), of("data.x")), ((false, true), (true, false)));
    assert_eq!(of("data.y"), of("data.x"), "which commit before the boundary wrote it is not in the clone");
}

/// Otherwise an undo of the oldest commit would delete all objects.
#[test]
fn what_the_oldest_commit_of_a_shallow_clone_changed_is_not_known() {
    let mut world = World::new(1);
    for value in ["1", "2", "3"] {
        put(&mut world, 0, MAP, &map("u", &format!(r#"{{"x":"{value}"}}"#)));
    }
    let clone = ShallowClone::new(&world);
    clone.fetch(2, &["+refs/heads/*:refs/heads/*", "+refs/gitcd/*:refs/gitcd/*"]);
    let history = clone.history();
    let commits = history.commits_after(None).expect("the clone can be read");
    let [newest, oldest] = &commits[..] else { panic!("two commits: {commits:?}") };
    let seen = [newest, oldest].map(|commit| {
        let changes = history.changes_of(commit).expect("the clone can be read");
        (history.is_oldest(commit).expect("the clone can be read"), changes.keys.len())
    });
    assert_eq!(seen, [(false, 1), (true, 0)]);
    let versions = history.versions(MAP.as_bytes(), 10, None).expect("the clone can be read");
    let kinds: Vec<_> = versions.iter().map(|version| version.what).collect();
    assert_eq!(kinds, [ChangeKind::Update, ChangeKind::Boundary]);
    let [before, after] = history.change(MAP.as_bytes(), &versions[1]).expect("the clone can be read");
    assert!(before.is_some() && before == after);
}
