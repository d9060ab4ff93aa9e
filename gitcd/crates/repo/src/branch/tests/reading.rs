//! Branches as stock Git and users see them, and adoption of existing history.

use super::*;

#[test]
fn a_person_reads_values_and_history_with_stock_git() {
    let mut store = Store::new();
    store.commit(&[("/registry/pods/default/nginx", Some("{\"kind\":\"Pod\",\"spec\":{}}\n"))]);
    store.commit(&[("/registry/pods/default/nginx", Some("{\"kind\":\"Pod\",\"spec\":{\"a\":1}}\n"))]);
    store.commit(&[("compact_rev_key", Some("5"))]);
    store.commit(&[("/registry/a/1", Some("1")), ("/registry/a/2", Some("2")), ("/registry/pods/default/nginx", None)]);
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
    let last = store.git(&["log", "-1", "--format=%an|%ae|%at|%(trailers:unfold,only)", DATA]);
    assert_eq!(last.trim(), "gitcd of test|gitcd@localhost|1700000005|Revision: 5\nClient: tester/1");
    let metadata = store.git(&["log", "--first-parent", "-2", "--format=%s", METADATA]);
    assert_eq!(metadata, "metadata at revision 5\nmetadata at revision 1\n");
    let parents = store.git(&["log", "-1", "--format=%P", METADATA]);
    assert!(parents.trim().ends_with(&store.reference(DATA)), "{parents}");
    assert_eq!(store.git(&["show", "refs/gitcd/metadata/main:local/compact_rev_key"]), "5");
    assert_eq!(store.git(&["show", "refs/gitcd/metadata/main:leases"]), "0000000000000007 60\n");
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
    assert_eq!(store.git(&["log", "-1", "--format=%s", DATA]).trim(), "create a/b/%value");
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
    assert_eq!(store.git(&["ls-tree", "-r", "--name-only", "main"]), "a/b\n");
    store.commit(&[("/registry/a/b", None)]);
    store.flush();
    store.check();
    assert_eq!(store.git(&["ls-tree", "-r", "--name-only", "main"]), "");
}

#[test]
fn ten_thousand_entries_take_deltas_not_copies() {
    let mut store = Store::new();
    let keys: Vec<String> = (0..10_000).map(|n| format!("/registry/things/thing-{n:05}")).collect();
    let all: Vec<(&str, Option<&str>)> = keys.iter().map(|key| (key.as_str(), Some("{\"a\":1}"))).collect();
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
    // The directory has 390 KiB; 300 versions of it must not take much more than one.
    assert!(pending.useful_bytes < 300 * 600, "{pending:?} {flushed:?}");
    // One whole directory: at least the incompressible twenty-byte IDs of half of its entries.
    assert!(pending.overhead_bytes > 100_000, "{pending:?} {flushed:?}");
    let (estimate, written) = (pending.overhead_bytes + pending.useful_bytes, flushed.pack_bytes as usize);
    assert!(estimate.abs_diff(written) < written / 2, "{estimate} bytes expected, {written} written");
}

fn adopt(path: &Path, state: &State) -> Result<Branch, AdoptError> {
    let (check, state) = (|_: &[u8], _: &[u8]| Ok(()), state.clone());
    let takeover = Takeover { state, version: 1, depth: None, anew: false, check: &check, progress: &mut |_| () };
    Branch::adopt(config(path), takeover).map(|(branch, _)| branch)
}

#[test]
fn many_keys_are_read_by_several_threads_and_a_damaged_value_is_named() {
    let mut store = Store::new();
    let numbered = |kind: &str, number: usize| {
        (format!("/registry/{kind}/n{}/o{number}", number % 50), format!("{kind} {number}"))
    };
    let pairs: Vec<(String, String)> = (0..9_000).map(|number| numbered("pods", number)).collect();
    for chunk in pairs.chunks(1_000) {
        let changes: Vec<_> = chunk.iter().map(|(key, value)| (&**key, Some(&**value))).collect();
        store.commit(&changes);
    }
    store.commit(&[("compact_rev_key", Some("5")), ("elsewhere", Some("x"))]);
    store.flush();
    let (state, keys) = store.loaded();
    assert_eq!(state, store.state);
    assert_eq!(keys, store.model);

    let blob = store.reference("main:pods/n7/o8007");
    for pack in store.files("pack") {
        std::fs::rename(&pack, store.path.join("taken.pack")).unwrap();
        std::fs::remove_file(pack.with_extension("idx")).unwrap();
        let unpacked = std::process::Command::new("git")
            .arg("--git-dir")
            .arg(&store.path)
            .args(["unpack-objects", "-q"])
            .stdin(std::fs::File::open(store.path.join("taken.pack")).unwrap())
            .status();
        assert!(unpacked.unwrap().success());
    }
    std::fs::remove_file(store.path.join("objects").join(&blob[..2]).join(&blob[2..])).unwrap();
    store.reopen();
    let error = store.branch.load(store.branch.head().metadata).unwrap_err();
    assert_eq!(error.path, "pods/n7/o8007");
    assert!(error.to_string().contains(&blob), "{error}");
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
        git(path, &["-c", "user.name=p", "-c", "user.email=p@localhost", "commit", "-qm", "by hand"]);
    };
    commit();
    let missing = Branch::open(config(path)).unwrap_err();
    assert!(missing.to_string().contains("gitcd init"), "{missing}");
    let state = State { revision: 10, ..State::default() };
    let mut branch = adopt(path, &state).unwrap();
    let keys = |branch: &Branch| {
        let loaded = branch.load(branch.head().metadata).unwrap();
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let mut keys: Vec<_> = loaded.keys.iter().map(|key| (text(&key.key), text(&key.value), key.record)).collect();
        keys.sort_by(|a, b| a.0.cmp(&b.0));
        keys
    };
    let record = Record { create_revision: 10, mod_revision: 10, version: 1, lease: 0 };
    let expected = vec![
        ("/registry/pods/default/a".to_owned(), "{\"kind\":\"Pod\"}\n".to_owned(), record),
        ("/registry/pods/default/b".to_owned(), "kind: Pod\n".to_owned(), record),
    ];
    assert_eq!(keys(&branch), expected);
    let put = Change { key: "/registry/pods/default/a".into(), action: Action::Delete };
    let revisions = Revisions { first: 11, last: 11, time: SystemTime::now(), clients: Vec::new(), changes: vec![put] };
    branch.commit(&revisions).unwrap();
    branch.flush(&State { revision: 11, ..State::default() }).unwrap();
    let branch = Branch::open(config(path)).unwrap().unwrap();
    assert_eq!(keys(&branch), expected[1..]);
    git(path, &["fsck", "--full", "--strict"]);
    assert!(matches!(adopt(path, &state), Err(AdoptError::Exists { .. })));

    git(path, &["update-ref", "-d", METADATA]);
    git(path, &["reset", "-q", "--hard"]);
    std::fs::write(path.join("pods/%zz"), "x").unwrap();
    commit();
    let error = adopt(path, &state).unwrap_err();
    assert!(error.to_string().contains("pods/%zz"), "{error}");
}

#[test]
fn the_deepest_key_that_fits_is_committed_and_read() {
    let mut store = Store::new();
    let key = format!("/registry{}", "/a".repeat(gitcd_core::path::MAX_DEPTH));
    store.commit(&[(&key, Some("deep"))]);
    store.flush();
    store.reopen();
    store.check();
    store.commit(&[(&key, None)]);
    store.flush();
    store.check();
}
