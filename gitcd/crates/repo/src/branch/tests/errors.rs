//! Refusals and their messages.

use std::process::Command;

use super::*;

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
        let mut arguments =
            vec!["-c", "user.name=p", "-c", "user.email=p@localhost", "commit-tree", "-m", "x", tree.trim()];
        parents.split_whitespace().for_each(|parent| arguments.extend(["-p", parent]));
        store.git(&arguments).trim().to_owned()
    };
    let load = |commit: &str| {
        let error = store.branch.load(Oid::from_str(commit).unwrap()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&error.commit.to_string()) && text.contains("refs/"), "{text}");
        text
    };
    for (path, old, new, said) in [
        ("format", "metadata 1", "metadata 2", "gitcd metadata 2"),
        ("state", "revision 2", "revision -", "line 1"),
        ("leases", " 60", " x", "line 1"),
        ("keys", "/registry/b/c 2", "/registry/b/c x", "line 2"),
        ("keys", "/registry/b/c 2", "/registry/b/d 2", "no such file"),
        ("keys", "/registry/b/c 2 2 1 2 r d\n", "", "\"b/c\": the metadata has no key"),
        ("keys", "r d", "n d", "form 'n'"),
        ("keys", "/registry/a", "/other/a", "key prefix"),
    ] {
        let text = load(&edit(path, old, new));
        assert!(text.contains(said), "{path} {old:?} -> {new:?}: {text}");
    }
    assert!(load(&store.reference("main^{tree}")).contains("is a tree, not a commit"));
    assert!(load("c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00").contains("cannot read the object"));
    assert!(load(&store.reference("main~1")).contains("parents"));

    // The reference itself is wrong: opening fails as clearly.
    let blob = store.reference("main:b/c");
    std::fs::write(store.path.join(METADATA), format!("{blob}\n")).unwrap();
    let error = Branch::open(config(&store.path)).unwrap_err().to_string();
    assert!(error.contains("is a blob, not a commit") && error.contains(METADATA), "{error}");
}

#[test]
fn a_revision_that_cannot_be_committed_changes_nothing() {
    let mut store = Store::new();
    let put = |key: Vec<u8>| Change {
        key: key.into(),
        action: Action::Put {
            value: "1".into(),
            record: Record { create_revision: 2, mod_revision: 2, version: 1, lease: 0 },
        },
    };
    let mut commit = |key: Vec<u8>| {
        let changes = vec![put(b"/registry/good".to_vec()), put(key)];
        let revisions = Revisions { first: 2, last: 2, time: SystemTime::now(), clients: Vec::new(), changes };
        store.branch.commit(&revisions)
    };
    assert!(matches!(commit(b"/registry/events/a".to_vec()), Err(CommitError::Ephemeral { .. })));
    assert!(matches!(commit([b"/registry".to_vec(), b"/a".repeat(3000)].concat()), Err(CommitError::TooDeep { .. })));
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
    // Not even root can create a file below a file.
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

/// The committer asks for it until the branch can be opened again.
#[test]
fn what_is_pending_is_known_after_a_flush_that_failed_behind_its_pack() {
    let mut store = Store::new();
    store.commit(&[("/registry/a", Some("1"))]);
    store.flush();
    let (before, empty) = (store.loaded(), store.branch.pending());
    store.commit(&[("/registry/a", Some("2")), ("/registry/b/c", Some("1"))]);
    assert!(store.branch.pending().pack_bytes > empty.pack_bytes);
    // A Git that was killed leaves such a lock.
    let lock = store.path.join(format!("{DATA}.lock"));
    std::fs::write(&lock, "").unwrap();
    let state = store.state.clone();
    let error = store.branch.flush(&state).unwrap_err();
    assert!(matches!(error, FlushError::Reference(_)), "{error}");
    let pending = store.branch.pending();
    let content = |of: &Pending| (of.pack_bytes, of.useful_bytes);
    assert_eq!(content(&pending), content(&empty), "the pack is written");
    std::fs::remove_file(&lock).unwrap();
    store.reopen();
    assert_ne!(store.loaded(), before, "the move of the references is completed");
    store.check();
}

#[test]
fn a_folder_with_something_else_in_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    let error = Branch::create(config(folder.path()), &State::default()).unwrap_err();
    assert!(error.to_string().contains("is not a Git repository"), "{error}");
    assert!(!folder.path().join("HEAD").exists());
}
