//! Pushed objects are passed on to other clients as received, and leave them with complete histories.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use git2::{Repository, Signature, Time};
use gitcd_repo::boundary::Cut;
use gitcd_repo::graph::Graph;
use proptest::prelude::*;

use super::super::super::recent::Recent;
use super::*;

/// Runs a Git command with `input` on standard input.
fn git(repository: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new("git");
    command.arg("-C").arg(repository).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    output.stdout
}

/// Creates a repository with the history of a commit.
fn with(folder: &Path, from: &Path, has: Oid) -> Repository {
    let repository = Repository::init_bare(folder).unwrap();
    let pack = git(from, &["pack-objects", "--revs", "--stdout", "-q"], format!("{has}\n").as_bytes());
    git(folder, &["index-pack", "--stdin"], &pack);
    repository
}

/// Commits changes to some files; content 0 deletes a file. Earlier contents may return.
fn commit(repository: &Repository, parents: &[Oid], number: usize, files: &[(u8, u8)]) -> Oid {
    let parents: Vec<_> = parents.iter().map(|oid| repository.find_commit(*oid).unwrap()).collect();
    let before = parents.first().map(|parent| parent.tree().unwrap());
    let mut tree = repository.treebuilder(before.as_ref()).unwrap();
    for (file, content) in files {
        let (directory, name) = (format!("directory-{}", file % 3), format!("file-{file}"));
        let below = tree.get(&directory).unwrap().map(|entry| repository.find_tree(entry.id()).unwrap());
        let mut below = repository.treebuilder(below.as_ref()).unwrap();
        let text = format!("{content} {file}\n").repeat(30);
        if *content > 0 {
            below.insert(name, repository.blob(text.as_bytes()).unwrap(), 0o100_644).unwrap();
        } else if below.get(&name).unwrap().is_some() {
            below.remove(&name).unwrap();
        }
        tree.insert(directory, below.write().unwrap(), 0o040_000).unwrap();
    }
    let tree = repository.find_tree(tree.write().unwrap()).unwrap();
    let author = Signature::new("a", "a@b", &Time::new(1000, 0)).unwrap();
    let parents: Vec<_> = parents.iter().collect();
    repository.commit(None, &author, &author, &format!("{number}"), &tree, &parents).unwrap()
}

fn packed(all: &Repository, tip: Oid, before: Oid, by_git: bool) -> Vec<u8> {
    if by_git {
        let wanted = format!("{tip}\n^{before}\n");
        return git(all.path(), &["pack-objects", "--revs", "--stdout", "-q", "--thin"], wanted.as_bytes());
    }
    let bounds = gitcd_repo::transfer::Bounds { commits: 100, bytes: 1 << 20 };
    gitcd_repo::transfer::thin(all, &[tip], &[before], Vec::new(), bounds).unwrap().unwrap()
}

/// Pushes to `main` as the host does; `None` if the host leaves it to Git.
fn push(host: &Repository, recent: &Recent, pack: &[u8], tip: Oid, quarantine: &Path) -> Option<Taken> {
    std::fs::create_dir_all(quarantine.join("pack")).unwrap();
    let wanted = [Wanted { reference: "refs/heads/main".to_owned(), id: tip }];
    let known = (&*recent.of(host.path()), &recent.history(host.path()));
    let bounds = Bounds { objects: MAX_OBJECTS, bytes: MAX_CONTENT };
    let taken = take(host.path(), quarantine, pack, &wanted, known, bounds).unwrap()?;
    for file in std::fs::read_dir(quarantine.join("pack")).unwrap() {
        let file = file.unwrap();
        std::fs::rename(file.path(), host.path().join("objects/pack").join(file.file_name())).unwrap();
    }
    host.reference("refs/heads/main", tip, true, "").unwrap();
    Some(taken)
}

#[test]
fn a_branch_that_was_moved_back_is_not_taken_for_one_that_needs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let all = Repository::init_bare(at("all")).unwrap();
    let mut commits = vec![commit(&all, &[], 0, &[(1, 1), (2, 1)])];
    for number in 1..4 {
        commits.push(commit(&all, &[commits[number - 1]], number, &[(1, number as u8 + 1)]));
    }
    let [first, second, third, _] = commits[..] else { unreachable!() };
    let host = with(&at("host"), all.path(), commits[3]);
    host.reference("refs/heads/main", commits[3], true, "").unwrap();
    let recent = Recent::default();
    let nothing = received::pack_of(0, &[]);
    let taken = push(&host, &recent, &nothing, second, &at("back"));
    if let Some((received, step)) = taken {
        assert!(step.is_none(), "the commit was not part of this push");
        recent.add(host.path(), received, step);
    }
    let other = commit(&all, &[second], 9, &[(2, 2)]);
    let (received, step) = push(&host, &recent, &packed(&all, other, second, false), other, &at("on")).unwrap();
    recent.add(host.path(), received, step);
    let history = recent.history(host.path());
    assert_eq!(history.pack(&[other], &[first], 1 << 20), None, "the commits in between are unknown");
    assert!(history.pack(&[other], &[second], 1 << 20).is_some());
    assert_eq!(history.pack(&[third], &[first], 1 << 20), None);
}

/// They may be pruned, although the host still has their pushes in memory.
#[test]
fn what_continues_from_a_removed_commit_is_left_to_git() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let all = Repository::init_bare(at("all")).unwrap();
    let mut line = vec![commit(&all, &[], 0, &[(1, 1)])];
    let host = with(&at("host"), all.path(), line[0]);
    host.reference("refs/heads/main", line[0], true, "").unwrap();
    let recent = Recent::default();
    for number in 1..4 {
        let before = line[number - 1];
        let tip = commit(&all, &[before], number, &[(1, number as u8 + 1)]);
        let pack = packed(&all, tip, before, false);
        let (received, step) = push(&host, &recent, &pack, tip, &at(&format!("{number}"))).unwrap();
        recent.add(host.path(), received, step);
        line.push(tip);
    }
    let pushed_on = |parent: Oid, number: usize| {
        let tip = commit(&all, &[parent], number, &[(2, number as u8)]);
        let taken = push(&host, &recent, &packed(&all, tip, parent, false), tip, &at(&format!("{number}")));
        host.reference("refs/heads/main", line[3], true, "").unwrap();
        taken.is_some()
    };
    assert!(pushed_on(line[1], 4));
    let plan = Graph::lenient().plan_cut(&host, &[line[2]], &[line[3]]).unwrap();
    let (reference, archive) = ("refs/heads/main".to_owned(), String::new());
    let cut = Cut { reference, revision: 1, data: line[2], at: 1, archive };
    plan.record(host.path(), &cut).unwrap();
    plan.apply(host.path()).unwrap();
    assert!(!pushed_on(line[1], 5) && pushed_on(line[2], 6) && pushed_on(line[3], 7));
}

#[test]
fn a_directory_that_is_none_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let all = Repository::init_bare(at("all")).unwrap();
    let first = commit(&all, &[], 0, &[(1, 1)]);
    let host = with(&at("host"), all.path(), first);
    host.reference("refs/heads/main", first, true, "").unwrap();
    let (odb, blob) = (all.odb().unwrap(), all.blob(b"no directory").unwrap());
    let tree = [&b"100644 a\0"[..], blob.as_bytes(), b"40000 b\0", blob.as_bytes()].concat();
    let tree = odb.write(ObjectType::Tree, &tree).unwrap();
    for (number, root) in [tree, blob].into_iter().enumerate() {
        let person = "a <a@b> 1000 +0000";
        let text = format!("tree {root}\nparent {first}\nauthor {person}\ncommitter {person}\n\nbad\n");
        let bad = odb.write(ObjectType::Commit, text.as_bytes()).unwrap();
        let mut builder = all.packbuilder().unwrap();
        [bad, tree, blob].iter().for_each(|oid| builder.insert_object(*oid, None).unwrap());
        let mut pack = git2::Buf::new();
        builder.write_buf(&mut pack).unwrap();
        let taken = push(&host, &Recent::default(), &pack, bad, &at(&format!("bad-{number}")));
        assert!(taken.is_none(), "{number}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whoever_gets_what_others_pushed_has_everything(
        // Each push: the changes of its commits, whether the second writer makes and merges them, whether Git packs them.
        pushes in prop::collection::vec(
            (prop::collection::vec(prop::collection::vec((0..6_u8, 0..3_u8), 0..4), 1..4), any::<bool>(), any::<bool>()),
            3..9,
        ),
        asked in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 3),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let all = Repository::init_bare(at("all")).unwrap();
        let first = commit(&all, &[], 0, &(0..30).map(|file| (file, 1)).collect::<Vec<_>>());
        let host = with(&at("host"), all.path(), first);
        host.reference("refs/heads/main", first, true, "").unwrap();
        let recent = Recent::default();
        // Two writers; the second always continues from its own last commit.
        let (mut tips, mut own, mut number) = (vec![first], first, 1);
        let mut is_handed_on = Vec::new();
        for (at_push, (commits, merges, by_git)) in pushes.iter().enumerate() {
            let before = tips[tips.len() - 1];
            let mut tip = if *merges { own } else { before };
            for files in commits {
                tip = commit(&all, &[tip], number, files);
                number += 1;
            }
            if *merges {
                tip = commit(&all, &[before, tip], number, &[]);
                own = tip;
                number += 1;
            }
            let pack = packed(&all, tip, before, *by_git);
            if let Some((received, step)) = push(&host, &recent, &pack, tip, &at(&format!("quarantine-{at_push}"))) {
                prop_assert!(*by_git || step.is_some(), "what gitcd pushes is passed on");
                is_handed_on.push(step.is_some());
                recent.add(host.path(), received, step);
            } else {
                prop_assert!(*by_git || *merges, "what gitcd pushes is plain");
                is_handed_on.push(false);
                // The pack relies on objects from further back.
                git(host.path(), &["index-pack", "--stdin", "--fix-thin", "--strict"], &pack);
                host.reference("refs/heads/main", tip, true, "").unwrap();
            }
            tips.push(tip);
        }
        git(host.path(), &["fsck", "--full", "--strict"], b"");
        for (number, (have, want)) in asked.iter().enumerate() {
            let (have, want) = (have.index(tips.len()), want.index(tips.len()));
            let pack = recent.history(host.path()).pack(&[tips[want]], &[tips[have]], 1 << 20);
            if have >= want {
                // Beyond a push without a step the history does not show what the client has: it may be sent again.
                let is_known = is_handed_on[want..have].iter().all(|is_handed_on| *is_handed_on);
                prop_assert!(!is_known || pack.is_none(), "the client has everything already");
                continue;
            }
            let is_linear = pushes[have..want].iter().all(|(_, merges, by_git)| !merges && !by_git);
            prop_assert!(!is_linear || pack.is_some());
            let Some(pack) = pack else { continue };
            let client = at(&format!("client-{number}"));
            let opened = with(&client, all.path(), tips[have]);
            let bounds = Bounds { objects: 10_000, bytes: 1 << 24 };
            let received = received::read(&pack, &opened.odb().unwrap(), &[], bounds).unwrap();
            prop_assert!(received.get(tips[want]).is_some());
            git(&client, &["index-pack", "--stdin", "--fix-thin", "--strict"], &pack);
            git(&client, &["rev-list", "--objects", "--quiet", &tips[want].to_string()], b"");
        }
    }
}
