use std::io::Write as _;

use git2::{Indexer, Signature, Time};

use super::*;

/// Its earlier version is then a base, and must not be a delta against a delta of itself: Git before 2.50 reports damage.
#[test]
fn a_directory_that_is_again_what_it_was_is_no_delta_in_a_circle() {
    let folder = tempfile::tempdir().unwrap();
    let from = Repository::init_bare(folder.path()).unwrap();
    let author = Signature::new("a", "a@b", &Time::new(1000, 0)).unwrap();
    let mut commits: Vec<Oid> = Vec::new();
    for extra in [false, true, false] {
        let mut below = from.treebuilder(None).unwrap();
        for name in 0..50 {
            below.insert(format!("{name:03}"), from.blob(b"x").unwrap(), 0o100_644).unwrap();
        }
        if extra {
            below.insert("extra", from.blob(b"y").unwrap(), 0o100_644).unwrap();
        }
        let mut tree = from.treebuilder(None).unwrap();
        tree.insert("d", below.write().unwrap(), 0o040_000).unwrap();
        let tree = from.find_tree(tree.write().unwrap()).unwrap();
        let parents: Vec<_> = commits.last().map(|oid| from.find_commit(*oid).unwrap()).into_iter().collect();
        let message = format!("{}", commits.len());
        let parents: Vec<_> = parents.iter().collect();
        commits.push(from.commit(None, &author, &author, &message, &tree, &parents).unwrap());
    }
    let bounds = Bounds { commits: 10, bytes: 1 << 20 };
    let pack = thin(&from, &commits[2..], &commits[..1], Vec::new(), bounds).unwrap().unwrap();
    let to = tempfile::tempdir().unwrap();
    let git = |folder: &std::path::Path, arguments: &[&str], input: &[u8]| {
        let mut command = std::process::Command::new("git");
        command.arg("-C").arg(folder).args(arguments);
        let piped = std::process::Stdio::piped;
        let mut child = command.stdin(piped()).stdout(piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        output.stdout
    };
    git(to.path(), &["init", "-q", "--bare"], b"");
    let arguments = ["pack-objects", "--revs", "--stdout", "-q"];
    let whole = git(folder.path(), &arguments, format!("{}\n", commits[0]).as_bytes());
    git(to.path(), &["index-pack", "--stdin"], &whole);
    git(to.path(), &["index-pack", "--stdin", "--fix-thin", "--strict"], &pack);
    git(to.path(), &["rev-list", "--objects", "--quiet", &commits[2].to_string()], b"");
}

/// After the end of a chain of deltas, the next one starts.
#[test]
fn a_thin_pack_of_more_commits_than_deltas_in_a_row_is_understood_by_libgit2() {
    let folder = tempfile::tempdir().unwrap();
    let from = Repository::init_bare(folder.path().join("from")).unwrap();
    let to = Repository::init_bare(folder.path().join("to")).unwrap();
    let author = Signature::new("a", "a@b", &Time::new(1000, 0)).unwrap();
    let mut commits: Vec<Oid> = Vec::new();
    let mut tree = None;
    for number in 0..200 {
        let before = tree.map(|tree| from.find_tree(tree).unwrap());
        let mut builder = from.treebuilder(before.as_ref()).unwrap();
        for name in 0..100 {
            if number == 0 || name == number % 100 {
                let blob = from.blob(format!("{name} {number}").as_bytes()).unwrap();
                builder.insert(format!("file-{name}"), blob, 0o100_644).unwrap();
            }
        }
        let next = builder.write().unwrap();
        tree = Some(next);
        let parents: Vec<_> = commits.last().map(|oid| from.find_commit(*oid).unwrap()).into_iter().collect();
        let parents: Vec<_> = parents.iter().collect();
        let next = from.find_tree(next).unwrap();
        commits.push(from.commit(None, &author, &author, "a commit", &next, &parents).unwrap());
        if number == 0 {
            let mut first = Pack::default();
            first.tree(&from.odb().unwrap(), &[], next.id()).unwrap();
            first.commit(&from.odb().unwrap(), commits[0]).unwrap();
            first.publish(&to).unwrap();
        }
    }
    let last = *commits.last().unwrap();
    let bounds = Bounds { commits: 1000, bytes: 32 << 20 };
    let pack = thin(&from, &[last], &commits[..1], Vec::new(), bounds).unwrap().unwrap();
    let odb = to.odb().unwrap();
    let mut indexer = Indexer::new(Some(&odb), &to.path().join("objects/pack"), 0, true).unwrap();
    indexer.write_all(&pack).unwrap();
    indexer.commit().unwrap();
    let to = Repository::open(to.path()).unwrap();
    for oid in commits {
        let tree = to.find_commit(oid).unwrap().tree().unwrap();
        assert!(tree.iter().all(|entry| to.find_blob(entry.id()).is_ok()), "{oid}");
    }
}

/// Directories are kept longer than values, and paths count, too.
#[test]
fn bases_of_deltas_take_limited_memory() {
    let mut pack = Pack { max_last_bytes: 100 << 10, ..Pack::default() };
    let mut keep = |path: &str, kind, bytes: usize| {
        pack.path = path.as_bytes().to_vec();
        let placed = pack.writer.whole(kind, Oid::ZERO_SHA1, b"");
        pack.keep(Version { kind, oid: Oid::ZERO_SHA1, placed, content: vec![0; bytes] });
        let all = pack.last.iter().map(|(path, version)| version.bytes(path)).sum::<usize>();
        assert_eq!(pack.last_bytes, all);
        assert!(all <= 100 << 10, "{all}");
        pack.last.len()
    };
    assert_eq!(keep("/directory", Kind::Tree, 10 << 10), 1);
    assert_eq!(keep("/directory/value", Kind::Blob, 60 << 10), 2);
    // A new version replaces the former one.
    assert_eq!(keep("/directory/value", Kind::Blob, 70 << 10), 2);
    assert_eq!(keep("/directory/other", Kind::Blob, 30 << 10), 2, "the directory and this one");
    assert_eq!(keep("/another", Kind::Tree, 40 << 10), 3);
    assert_eq!(keep("/a third", Kind::Tree, 30 << 10), 1, "too many directories");
    for number in 0..10_000 {
        keep(&format!("/empty/{number:050}"), Kind::Blob, 0);
    }
}

#[test]
fn a_failed_write_ends_a_transfer_at_once_and_the_next_one_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let from = Repository::init_bare(folder.path().join("from")).unwrap();
    let to = Repository::init_bare(folder.path().join("to")).unwrap();
    let mut tree = from.treebuilder(None).unwrap();
    let mut state = 1_u64;
    for number in 0..24 {
        let noise = (0..1 << 17).flat_map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()
        });
        let mut below = from.treebuilder(None).unwrap();
        below.insert("value", from.blob(&noise.collect::<Vec<u8>>()).unwrap(), 0o100_644).unwrap();
        tree.insert(format!("{number:02}"), below.write().unwrap(), 0o040_000).unwrap();
    }
    let (tree, odb) = (tree.write().unwrap(), from.odb().unwrap());
    let mut pack = Pack::default();
    pack.writer.spill.set_folder(folder.path().join("absent/absent/pack"));
    let error = pack.tree(&odb, &[], tree).unwrap_err();
    assert!(matches!(error, TransferError::Write(_)), "{error}");
    pack.restart();
    pack.spill_to(&to);
    pack.tree(&odb, &[], tree).unwrap();
    pack.publish(&to).unwrap();
    assert!(to.find_tree(tree).unwrap().iter().all(|below| to.find_tree(below.id()).is_ok()));
}
