use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use git2::Oid;

use super::{Boundary, Cut, SetError};

fn oid(number: u32) -> Oid {
    Oid::from_str(&format!("{number:040x}")).expect("it has 40 digits")
}

fn cut(boundary: &[u32]) -> Cut {
    let boundary = boundary.iter().map(|number| oid(*number)).collect::<BTreeSet<_>>();
    Cut { reference: "refs/heads/main".into(), revision: 7, at: 1_795_737_600, archive: "/a b".into(), boundary }
}

fn write_shallow(folder: &std::path::Path, boundary: &[u32]) {
    let lines: Vec<String> = boundary.iter().map(|number| format!("{}\n", oid(*number))).collect();
    fs::write(folder.join("shallow"), lines.concat()).unwrap();
}

#[test]
fn a_cut_comes_back_with_all_removed_commits() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Boundary::read(folder.path()).unwrap().commits().is_empty());
    let removed: Vec<Oid> = (100..500).step_by(3).map(oid).collect();
    Boundary::record(folder.path(), &cut(&[1, 2]), &removed).unwrap();
    Boundary::record(folder.path(), &cut(&[3, 2]), &[oid(1), oid(9)]).unwrap();
    assert!(Boundary::read(folder.path()).unwrap().cut().is_none(), "it is not made yet");
    write_shallow(folder.path(), &[2, 3]);
    let found = Boundary::read(folder.path()).unwrap();
    assert_eq!(found.cut(), Some(&cut(&[3, 2])));
    assert_eq!(found.cut().unwrap().date(), "2026-11-27");
    assert!(found.has(oid(2)) && !found.has(oid(1)));
    for number in 0..600 {
        let is_removed = [1, 9].contains(&number) || removed.contains(&oid(number));
        assert_eq!(found.removed(oid(number)).unwrap(), is_removed, "{number}");
    }
}

#[test]
fn a_boundary_that_another_program_moved_is_not_that_of_the_cut() {
    let folder = tempfile::tempdir().unwrap();
    Boundary::record(folder.path(), &cut(&[1, 2]), &[oid(9)]).unwrap();
    write_shallow(folder.path(), &[1, 2]);
    let before = Boundary::read(folder.path()).unwrap();
    assert!(before.cut().is_some() && !before.is_outdated(folder.path()));
    write_shallow(folder.path(), &[1]);
    assert!(before.is_outdated(folder.path()));
    let after = Boundary::read(folder.path()).unwrap();
    assert!(after.cut().is_none() && after.has(oid(1)) && !after.removed(oid(9)).unwrap());
}

#[test]
fn damaged_files_are_errors_and_a_copy_has_all_of_them() {
    let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    Boundary::record(folder.path(), &cut(&[1]), &[oid(9)]).unwrap();
    write_shallow(folder.path(), &[1]);
    fs::write(copy.path().join("HEAD"), "").unwrap();
    Boundary::copy(folder.path(), copy.path()).unwrap();
    assert!(Boundary::read(copy.path()).unwrap().removed(oid(9)).unwrap());
    for (name, text) in [("shallow", "x\n"), ("gitcd-maintenance/removed", "short"), ("gitcd-maintenance/cut", "x\n")] {
        let whole = fs::read(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name), text).unwrap();
        assert!(Boundary::read(folder.path()).is_err(), "{name}");
        fs::write(folder.path().join(name), whole).unwrap();
    }
}

#[test]
fn the_boundary_is_replaced_under_the_lock_of_git_with_the_mode_of_the_repository() {
    let folder = tempfile::tempdir().unwrap();
    let (head, lock, shallow) =
        (folder.path().join("HEAD"), folder.path().join("shallow.lock"), folder.path().join("shallow"));
    fs::write(&head, "").unwrap();
    let before = Boundary::read(folder.path()).unwrap();
    for mode in [0o600, 0o644, 0o664] {
        fs::set_permissions(&head, fs::Permissions::from_mode(mode)).unwrap();
        let before = Boundary::read(folder.path()).unwrap();
        before.replace(folder.path(), &[oid(mode)].into()).unwrap();
        assert_eq!(fs::metadata(&shallow).unwrap().permissions().mode() & 0o777, mode);
        assert!(Boundary::read(folder.path()).unwrap().has(oid(mode)) && !lock.exists());
    }
    assert!(matches!(before.replace(folder.path(), &[oid(1)].into()), Err(SetError::Changed(_))));
    assert!(!lock.exists());
    let now = Boundary::read(folder.path()).unwrap();
    fs::write(&lock, "of Git").unwrap();
    assert!(matches!(now.replace(folder.path(), &[oid(1)].into()), Err(SetError::Locked(_))));
    assert_eq!(fs::read_to_string(&lock).unwrap(), "of Git");
    fs::remove_file(&lock).unwrap();
    // Left by a killed gitcd.
    let own = folder.path().join("gitcd-maintenance/shallow");
    fs::write(&own, "x").unwrap();
    fs::hard_link(&own, &lock).unwrap();
    now.replace(folder.path(), &[oid(1)].into()).unwrap();
    assert!(!lock.exists() && !own.exists());
}
