use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use git2::Oid;

use gitcd_core::scope::Scope;

use super::{Boundary, Cut, FOLDER, OlderCommits, RecordError, SetError, is_cut};

fn oid(number: u32) -> Oid {
    Oid::from_str(&format!("{number:040x}")).expect("it has 40 digits")
}

fn cut(data: u32) -> Cut {
    let (reference, archive) = ("refs/heads/main".into(), "/a b".into());
    Cut { reference, revision: 7, data: oid(data), at: 1_795_737_600, archive }
}

fn ids(numbers: &[u32]) -> BTreeSet<Oid> {
    numbers.iter().map(|number| oid(*number)).collect()
}

fn write_shallow(folder: &Path, boundary: &[u32]) {
    let lines: Vec<String> = boundary.iter().map(|number| format!("{}\n", oid(*number))).collect();
    fs::write(folder.join("shallow"), lines.concat()).unwrap();
}

fn older(commits: &BTreeSet<Oid>) -> OlderCommits {
    OlderCommits { commits: commits.clone(), scopes: Vec::new() }
}

fn empty() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("HEAD"), "").unwrap();
    fs::create_dir(folder.path().join("objects")).unwrap();
    folder
}

/// Makes a cut as `gitcd retain` does.
fn make(folder: &Path, boundary: &[u32], removed: &[Oid]) {
    let before = Boundary::read(folder).unwrap();
    let removed = removed.iter().copied().collect();
    before.record(folder, &cut(boundary[0]), &ids(boundary), &removed, &older(&removed)).unwrap();
    before.apply(folder, &ids(boundary)).unwrap();
}

fn files(folder: &Path) -> usize {
    fs::read_dir(folder.join(FOLDER).join("cuts")).unwrap().count()
}

#[test]
fn a_cut_comes_back_with_all_removed_commits() {
    let folder = empty();
    let folder = folder.path();
    assert!(Boundary::read(folder).unwrap().cut().is_none() && !is_cut(folder).unwrap());
    let removed: Vec<Oid> = (100..500).step_by(3).map(oid).collect();
    make(folder, &[1, 2], &removed);
    make(folder, &[3, 2], &[oid(9)]);
    let found = Boundary::read(folder).unwrap();
    assert_eq!(found.cut(), Some(&cut(3)));
    assert_eq!(found.cut().unwrap().date(), "2026-11-27");
    assert!(found.has(oid(2)) && !found.has(oid(1)) && is_cut(folder).unwrap());
    for number in 0..600 {
        // The former boundary is removed, even if it is unreachable.
        let is_removed = [1, 9].contains(&number) || removed.contains(&oid(number));
        assert_eq!(found.removed(oid(number)).unwrap(), is_removed, "{number}");
        assert_eq!(found.all_removed().unwrap().contains(&oid(number)), is_removed);
    }
    assert_eq!(files(folder), 4);
    Boundary::tidy(folder).unwrap();
    assert_eq!(files(folder), 2);
    assert_eq!(Boundary::read(folder).unwrap().cut(), Some(&cut(3)));
}

/// A crash leaves what was there before each step.
#[test]
fn until_shallow_is_replaced_everything_is_as_before() {
    let folder = empty();
    let folder = folder.path();
    let before = Boundary::read(folder).unwrap();
    before.record(folder, &cut(1), &ids(&[1]), &ids(&[10]), &OlderCommits::default()).unwrap();
    assert!(Boundary::read(folder).unwrap().cut().is_none(), "the first cut is not made yet");
    before.apply(folder, &ids(&[1])).unwrap();
    let before = Boundary::read(folder).unwrap();
    assert!(before.removed(oid(10)).unwrap());
    before.record(folder, &cut(2), &ids(&[2]), &ids(&[1, 20]), &OlderCommits::default()).unwrap();
    for is_tidy in [false, true] {
        let now = Boundary::read(folder).unwrap();
        assert_eq!(now.cut(), Some(&cut(1)), "the second cut is not made yet");
        assert!(!now.removed(oid(20)).unwrap() && !now.removed(oid(1)).unwrap() && now.removed(oid(10)).unwrap());
        if !is_tidy {
            Boundary::tidy(folder).unwrap();
        }
    }
    before.record(folder, &cut(2), &ids(&[2]), &ids(&[1, 20]), &OlderCommits::default()).unwrap();
    before.apply(folder, &ids(&[2])).unwrap();
    let now = Boundary::read(folder).unwrap();
    assert!([1, 10, 20].iter().all(|number| now.removed(oid(*number)).unwrap()) && now.cut() == Some(&cut(2)));
}

#[test]
fn a_boundary_that_another_program_moved_is_not_that_of_the_cut_unless_it_only_shrank() {
    let folder = empty();
    let folder = folder.path();
    make(folder, &[1, 2], &[oid(9)]);
    let before = Boundary::read(folder).unwrap();
    assert!(before.cut().is_some() && !before.is_outdated(folder));
    // As `git gc` does with commits that nothing leads to.
    write_shallow(folder, &[1]);
    assert!(before.is_outdated(folder));
    let after = Boundary::read(folder).unwrap();
    assert!(after.has(oid(2)) && after.removed(oid(9)).unwrap());
    // As `git fetch --deepen` does.
    write_shallow(folder, &[1, 8]);
    let after = Boundary::read(folder).unwrap();
    assert!(after.cut().is_none() && !after.removed(oid(9)).unwrap() && !after.has(oid(1)));
    Boundary::tidy(folder).unwrap();
    assert!(is_cut(folder).unwrap(), "the record stays");
    // As `git fetch --unshallow` does.
    fs::remove_file(folder.join("shallow")).unwrap();
    assert!(Boundary::read(folder).unwrap().cut().is_none());
    Boundary::tidy(folder).unwrap();
    assert!(!is_cut(folder).unwrap());
}

#[test]
fn a_clone_with_a_limited_depth_has_no_boundary_of_gitcd() {
    let folder = empty();
    write_shallow(folder.path(), &[1]);
    let found = Boundary::read(folder.path()).unwrap();
    assert!(found.cut().is_none() && !found.has(oid(1)) && found.commits().next().is_none());
    fs::write(folder.path().join("shallow"), "damaged").unwrap();
    assert!(Boundary::read(folder.path()).unwrap().cut().is_none(), "Git reports it");
}

#[test]
fn restored_commits_are_a_part_of_the_boundary_and_no_others_are() {
    let folder = empty();
    let folder = folder.path();
    Boundary::restore(folder, &[oid(9)]).unwrap();
    assert!(!folder.join("shallow").exists());
    make(folder, &[1], &[oid(8), oid(9)]);
    Boundary::restore(folder, &[oid(9), oid(7)]).unwrap();
    let found = Boundary::read(folder).unwrap();
    assert!(found.has(oid(9)) && !found.removed(oid(9)).unwrap());
    assert!(!found.has(oid(7)) && found.removed(oid(8)).unwrap());
    assert_eq!(files(folder), 2);
    make(folder, &[5], &[oid(1)]);
    assert!(Boundary::read(folder).unwrap().removed(oid(9)).unwrap(), "the next cut removes it again");
}

#[test]
fn damaged_files_are_errors_and_a_copy_has_all_of_them() {
    let (folder, copy) = (empty(), empty());
    let folder = folder.path();
    make(folder, &[1], &[oid(9)]);
    Boundary::copy(folder, copy.path()).unwrap();
    assert!(Boundary::read(copy.path()).unwrap().removed(oid(9)).unwrap());
    let cuts = folder.join(FOLDER).join("cuts");
    let files: Vec<_> = fs::read_dir(&cuts).unwrap().map(|entry| entry.unwrap().path()).collect();
    for path in files.into_iter().chain([folder.join("shallow")]) {
        let whole = fs::read(&path).unwrap();
        fs::write(&path, "short\n").unwrap();
        assert!(Boundary::read(folder).is_err(), "{path:?}");
        fs::remove_file(&path).unwrap();
        if path.extension().is_some() {
            assert!(Boundary::read(folder).is_err(), "{path:?}");
        }
        fs::write(&path, whole).unwrap();
    }
    // Of several removed commits, the last one is missing, or one is another.
    make(folder, &[2], &[oid(9), oid(10)]);
    Boundary::tidy(folder).unwrap();
    let files = fs::read_dir(&cuts).unwrap().map(|entry| entry.unwrap().path());
    let removed = files.into_iter().find(|path| path.extension().is_some()).unwrap();
    let whole = fs::read(&removed).unwrap();
    fs::write(&removed, &whole[..whole.len() - 20]).unwrap();
    assert!(Boundary::read(folder).is_err());
    let mut other = whole.clone();
    other[19] ^= 1;
    fs::write(&removed, other).unwrap();
    assert!(Boundary::read(folder).unwrap().all_removed().is_err());
    fs::write(&removed, whole).unwrap();
    assert_eq!(Boundary::read(folder).unwrap().all_removed().unwrap().len(), 3);
    // A record under the name of another boundary.
    let record = removed.with_extension("");
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, text.replace(&oid(2).to_string(), &oid(3).to_string())).unwrap();
    assert!(Boundary::read(folder).is_err());
    // A clone with a limited depth, which gitcd did not cut.
    let (folder, copy) = (empty(), empty());
    write_shallow(folder.path(), &[3]);
    Boundary::copy(folder.path(), copy.path()).unwrap();
    assert_eq!(fs::read(copy.path().join("shallow")).unwrap(), fs::read(folder.path().join("shallow")).unwrap());
}

#[test]
fn the_boundary_is_replaced_under_the_lock_of_git_with_the_mode_of_the_repository() {
    let folder = empty();
    let folder = folder.path();
    let (head, lock, shallow) = (folder.join("HEAD"), folder.join("shallow.lock"), folder.join("shallow"));
    let first = Boundary::read(folder).unwrap();
    for mode in [0o600, 0o644, 0o664] {
        fs::set_permissions(&head, fs::Permissions::from_mode(mode)).unwrap();
        make(folder, &[mode], &[]);
        assert_eq!(fs::metadata(&shallow).unwrap().permissions().mode() & 0o777, mode);
        assert!(Boundary::read(folder).unwrap().has(oid(mode)) && !lock.exists());
    }
    let changed = first.apply(folder, &ids(&[1]));
    assert!(matches!(changed, Err(RecordError::Set(SetError::Changed(_)))), "{changed:?}");
    assert!(!lock.exists());
    let now = Boundary::read(folder).unwrap();
    fs::write(&lock, "of Git").unwrap();
    assert!(matches!(now.apply(folder, &ids(&[1])), Err(RecordError::Set(SetError::Locked(_)))));
    assert_eq!(fs::read_to_string(&lock).unwrap(), "of Git");
    fs::remove_file(&lock).unwrap();
    // Left by a killed gitcd.
    let own = folder.join(FOLDER).join("shallow");
    fs::write(&own, "x").unwrap();
    fs::hard_link(&own, &lock).unwrap();
    now.apply(folder, &ids(&[1])).unwrap();
    assert!(!lock.exists() && !own.exists());
}

#[test]
fn what_is_before_the_data_of_the_cut_is_known_as_long_as_later_cuts_continue_it() {
    let folder = empty();
    let folder = folder.path();
    let make = |data: u32, removed: &[u32], before_cut: &[u32]| {
        let before = Boundary::read(folder).unwrap();
        before.record(folder, &cut(data), &ids(&[data]), &ids(removed), &older(&ids(before_cut))).unwrap();
        before.apply(folder, &ids(&[data])).unwrap();
        Boundary::read(folder).unwrap()
    };
    let is_before =
        |found: &Boundary, cut: usize| [10, 20, 1, 30, 2].map(|number| found.is_before_cut(cut, oid(number)).unwrap());
    // 20 is metadata.
    assert_eq!(is_before(&make(1, &[10, 20], &[1, 10]), 0), [true, false, false, false, false]);
    assert_eq!(is_before(&make(2, &[1, 30], &[2, 1, 30]), 0), [true, false, true, true, false]);
    // A cut of another branch, and then one that continues the first.
    let found = make(3, &[40], &[3, 40]);
    assert_eq!(found.cuts(), [cut(2), cut(3)]);
    assert_eq!([is_before(&found, 0), is_before(&found, 1)], [[true, false, true, true, false], [false; 5]]);
    assert!([10, 20, 1, 30, 2, 40].iter().all(|number| found.removed(oid(*number)).unwrap()));
    assert_eq!([1, 2, 40, 3].map(|number| found.cut_at(oid(number)).unwrap().unwrap().data), [2, 2, 3, 3].map(oid));
    let found = make(4, &[2], &[4, 2]);
    assert_eq!(found.cuts(), [cut(3), cut(4)]);
    assert_eq!([is_before(&found, 0), is_before(&found, 1)], [[false; 5], [true, false, true, true, true]]);
    assert!(found.is_before_cut(0, oid(40)).unwrap() && !found.is_before_cut(1, oid(40)).unwrap());
    assert!([10, 20, 1, 30, 2, 40].iter().all(|number| found.removed(oid(*number)).unwrap()));
    assert!(!found.is_before_cut(2, oid(20)).unwrap(), "there is no such cut");
}

#[test]
fn the_keys_that_merges_before_any_cut_left_out_are_known() {
    let (folder, copy) = (empty(), empty());
    let folder = folder.path();
    let pods = Scope::new("^/pods/", "").unwrap();
    let mut rejected = Scope::default();
    rejected.leave_out("/a\n\n\u{e9}".as_bytes());
    for (data, scopes) in [(1, vec![pods.clone()]), (2, vec![pods.clone(), rejected.clone()]), (3, Vec::new())] {
        let before = Boundary::read(folder).unwrap();
        let older = OlderCommits { commits: [oid(data)].into(), scopes };
        before.record(folder, &cut(data), &ids(&[data]), &BTreeSet::new(), &older).unwrap();
        before.apply(folder, &ids(&[data])).unwrap();
    }
    Boundary::tidy(folder).unwrap();
    Boundary::copy(folder, copy.path()).unwrap();
    for folder in [folder, copy.path()] {
        let found = Boundary::read(folder).unwrap();
        assert_eq!(found.cut(), Some(&cut(3)));
        assert!(found.scopes().len() == 2 && found.scopes().contains(&pods) && found.scopes().contains(&rejected));
    }
    let files = fs::read_dir(folder.join(FOLDER).join("cuts")).unwrap().map(|entry| entry.unwrap().path());
    let record = files.into_iter().find(|path| path.extension().is_none()).unwrap();
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, &text[..text.rfind("\n\n").unwrap()]).unwrap();
    assert!(Boundary::read(folder).is_err(), "a part of a record");
}

#[test]
fn where_older_commits_are_archived_is_known_after_later_cuts() {
    let folder = empty();
    let folder = folder.path();
    for (data, archive) in [(1, "/one"), (2, "/two"), (3, "/two"), (4, "")] {
        let before = Boundary::read(folder).unwrap();
        let made = Cut { archive: archive.into(), ..cut(data) };
        let older = older(&(1..=data).map(oid).collect());
        before.record(folder, &made, &ids(&[data]), &BTreeSet::new(), &older).unwrap();
        before.apply(folder, &ids(&[data])).unwrap();
    }
    let found = Boundary::read(folder).unwrap();
    assert_eq!(found.cuts().iter().map(|cut| cut.archive.as_str()).collect::<Vec<_>>(), ["/one", "/two", ""]);
    assert_eq!((found.cut().unwrap().data, found.cuts()[1].data), (oid(4), oid(3)));
}

#[test]
fn a_part_that_was_fetched_again_is_not_cut_off_again() {
    let folder = empty();
    let folder = folder.path();
    let repository = git2::Repository::init_bare(folder).unwrap();
    let data = repository.odb().unwrap().write(git2::ObjectType::Blob, b"any").unwrap();
    let made = Cut { data, ..cut(1) };
    let before = Boundary::read(folder).unwrap();
    before.record(folder, &made, &[data, oid(1)].into(), &ids(&[2]), &older(&ids(&[2]))).unwrap();
    before.apply(folder, &[data, oid(1)].into()).unwrap();
    assert!(Boundary::read(folder).unwrap().removed(oid(2)).unwrap());
    // As `git fetch --unshallow` does from an archive that begins at a former boundary.
    write_shallow(folder, &[1]);
    assert!(Boundary::read(folder).unwrap().cut().is_none());
    // Also if it is that of another branch than the last cut.
    fs::write(folder.join("shallow"), format!("{}\n{data}\n", oid(1))).unwrap();
    let before = Boundary::read(folder).unwrap();
    before.record(folder, &cut(3), &[data, oid(1), oid(3)].into(), &ids(&[4]), &older(&ids(&[3, 4]))).unwrap();
    before.apply(folder, &[data, oid(1), oid(3)].into()).unwrap();
    assert_eq!(Boundary::read(folder).unwrap().cuts(), [made, cut(3)]);
    write_shallow(folder, &[1, 3]);
    assert!(Boundary::read(folder).unwrap().cut().is_none());
    write_shallow(folder, &[1]);
    Boundary::restore(folder, &[oid(2)]).unwrap();
    Boundary::tidy(folder).unwrap();
    assert_eq!(fs::read_to_string(folder.join("shallow")).unwrap(), format!("{}\n", oid(1)));
    assert!(is_cut(folder).unwrap(), "the record stays");
}

#[test]
fn records_stay_if_only_the_file_of_git_is_lost_and_so_do_other_files() {
    let folder = empty();
    let folder = folder.path();
    let repository = git2::Repository::init_bare(folder).unwrap();
    let tree = repository.treebuilder(None).unwrap().write().unwrap();
    let person = "a <a@b> 1000 +0000";
    let text = format!("tree {tree}\nparent {}\nauthor {person}\ncommitter {person}\n\nm", oid(9));
    let data = repository.odb().unwrap().write(git2::ObjectType::Commit, text.as_bytes()).unwrap();
    let made = Cut { data, ..cut(1) };
    let before = Boundary::read(folder).unwrap();
    before.record(folder, &made, &[data].into(), &ids(&[9]), &OlderCommits::default()).unwrap();
    Boundary::tidy(folder).unwrap();
    assert!(is_cut(folder).unwrap(), "the parent is not here");
    before.apply(folder, &[data].into()).unwrap();
    let other = folder.join(FOLDER).join("cuts").join("a file of a later version");
    fs::write(&other, "").unwrap();
    make(folder, &[5], &[]);
    Boundary::tidy(folder).unwrap();
    assert!(other.exists() && files(folder) == 3);
}

#[test]
fn no_files_of_another_folder_are_removed() {
    let (folder, other) = (empty(), empty());
    let folder = folder.path();
    std::os::unix::fs::symlink(other.path(), folder.join(FOLDER)).unwrap();
    let refused = Boundary::tidy(folder).unwrap_err();
    assert!(gitcd_core::error::chain(&refused).contains("symbolic link"), "{refused}");
}
