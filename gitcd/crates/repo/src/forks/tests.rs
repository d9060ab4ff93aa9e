use std::fs;
use std::sync::mpsc;
use std::time::Duration;

use super::*;

/// A repository as far as forks are concerned.
fn repository(path: &Path, shares: &[&Path]) {
    fs::create_dir_all(path.join("objects/info")).unwrap();
    fs::write(path.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    if !shares.is_empty() {
        let lines: Vec<String> = shares.iter().map(|path| format!("{}\n", path.join("objects").display())).collect();
        fs::write(path.join("objects/info/alternates"), lines.concat()).unwrap();
    }
}

fn fork(origin: &Path, path: &Path, lifetime: Lifetime) {
    let registration = start(origin, path, lifetime);
    repository(path, &[origin]);
    registration.identify().unwrap();
    drop(registration.complete());
}

fn start(origin: &Path, path: &Path, lifetime: Lifetime) -> Registration {
    Registration::start(origin, path, lifetime, Unregistered::Refused).unwrap()
}

fn states(origin: &Path) -> Vec<ForkState> {
    registered(origin).unwrap().into_iter().map(|fork| fork.state).collect()
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    (folder, path)
}

#[test]
fn a_fork_is_known_to_every_repository_whose_objects_it_needs() {
    let (_folder, at) = folder();
    let [origin, first, second, other] = ["origin", "first", "second", "other"].map(|name| at.join(name));
    repository(&origin, &[]);
    repository(&other, &[]);
    fork(&origin, &first, Lifetime::Permanent);
    fork(&first, &second, Lifetime::Permanent);
    let paths = |of: &Path| registered(of).unwrap().into_iter().map(|fork| fork.path).collect::<Vec<_>>();
    // The fork of the fork first: it needs the first one to become independent.
    assert_eq!(paths(&origin), [second.clone(), first.clone()]);
    assert_eq!(paths(&first), std::slice::from_ref(&second));
    assert!(paths(&other).is_empty());
    // The first one gets objects of its own, so the second one no longer needs those of the origin.
    fs::remove_file(first.join("objects/info/alternates")).unwrap();
    assert_eq!(states(&origin), [ForkState::Gone, ForkState::Gone]);
    assert_eq!(states(&first), [ForkState::Present]);
    assert!(ForksLock::take(&origin).unwrap().clean().unwrap().is_empty());
    assert!(registered(&origin).unwrap().is_empty());
}

#[test]
fn only_what_is_certain_ends_the_protection() {
    let (_folder, at) = folder();
    let [origin, path, away] = ["origin", "fork", "away"].map(|name| at.join(name));
    repository(&origin, &[]);
    let unseen = |state: &ForkState| matches!(state, ForkState::Unseen(_));
    for lifetime in [Lifetime::Permanent, Lifetime::Temporary] {
        fork(&origin, &path, lifetime);
        assert_eq!(states(&origin), [ForkState::Present]);
        // An empty mount point.
        fs::rename(&path, &away).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(unseen(&states(&origin)[0]));
        // A file in its place.
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(unseen(&states(&origin)[0]));
        fs::remove_file(&path).unwrap();
        match lifetime {
            Lifetime::Permanent => assert!(unseen(&states(&origin)[0])),
            Lifetime::Temporary => assert_eq!(states(&origin), [ForkState::Gone]),
        }
        // A part of the chain that cannot be seen.
        fs::rename(&away, &path).unwrap();
        repository(&path, &[&at.join("nowhere")]);
        assert!(unseen(&states(&origin)[0]));
        // Its own objects.
        fs::remove_file(path.join("objects/info/alternates")).unwrap();
        assert_eq!(states(&origin), [ForkState::Gone]);
        // Another repository in its place.
        fs::remove_dir_all(&path).unwrap();
        repository(&path, &[]);
        assert!(unseen(&states(&origin)[0]));
        fs::remove_dir_all(&path).unwrap();
        ForksLock::take(&origin).unwrap().forget(std::slice::from_ref(&path)).unwrap();
        assert!(registered(&origin).unwrap().is_empty());
    }
}

#[test]
fn only_forks_that_cannot_be_seen_are_forgotten() {
    let (_folder, at) = folder();
    let [origin, path, away] = ["origin", "fork", "away"].map(|name| at.join(name));
    repository(&origin, &[]);
    fork(&origin, &path, Lifetime::Permanent);
    let lock = ForksLock::take(&origin).unwrap();
    assert!(matches!(lock.forget(std::slice::from_ref(&path)), Err(ForksError::Present(_))));
    assert_eq!(lock.forget(&[at.join("other")]).unwrap().len(), 1);
    fs::rename(&path, &away).unwrap();
    assert_eq!(lock.clean().unwrap().len(), 1, "it was moved");
    for _ in 0..2 {
        assert!(lock.forget(std::slice::from_ref(&path)).unwrap().is_empty());
    }
    assert!(lock.clean().unwrap().is_empty());
}

#[test]
fn a_failed_fork_is_not_registered_and_a_former_one_stays() {
    let (_folder, at) = folder();
    let [origin, path] = ["origin", "fork"].map(|name| at.join(name));
    repository(&origin, &[]);
    drop(start(&origin, &path, Lifetime::Permanent));
    assert!(registered(&origin).unwrap().is_empty());
    fork(&origin, &path, Lifetime::Permanent);
    // It exists, so this fails; it does not become temporary.
    drop(start(&origin, &path, Lifetime::Temporary));
    fs::remove_dir_all(&path).unwrap();
    assert!(matches!(states(&origin)[..], [ForkState::Unseen(_)]));
    // One that was not completed, but shares the objects.
    let half = at.join("half");
    let registration = start(&origin, &half, Lifetime::Permanent);
    repository(&half, &[&origin]);
    registration.identify().unwrap();
    drop(registration);
    assert_eq!(registered(&origin).unwrap().len(), 2);
    // A record that cannot be read may be that of a fork.
    let damaged = origin.join(FOLDER).join("forks/damaged");
    fs::write(&damaged, "x").unwrap();
    let lock = ForksLock::take(&origin).unwrap();
    assert!(
        lock.clean().unwrap().iter().any(|fork| fork.path == damaged && matches!(fork.state, ForkState::Unseen(_)))
    );
    assert_eq!(lock.forget(&[damaged]).unwrap().len(), 2);
}

#[test]
fn while_objects_are_deleted_no_fork_is_made_and_the_other_way_round() {
    let (_folder, at) = folder();
    let [origin, path] = ["origin", "fork"].map(|name| at.join(name));
    repository(&origin, &[]);
    let lock = ForksLock::take(&origin).unwrap();
    let (started, starts) = mpsc::channel();
    let forking = std::thread::spawn({
        let (origin, path) = (origin.clone(), path.clone());
        move || {
            let registration = start(&origin, &path, Lifetime::Permanent);
            started.send(()).unwrap();
            registration
        }
    });
    assert!(starts.recv_timeout(Duration::from_millis(50)).is_err(), "it waits");
    assert!(lock.clean().unwrap().is_empty());
    drop(lock);
    let registration = forking.join().unwrap();
    let pruning = std::thread::spawn({
        let origin = origin.clone();
        move || ForksLock::take(&origin).unwrap().clean().unwrap().len()
    });
    let lock = fs::File::open(origin.join(FOLDER).join("forks.lock")).unwrap();
    let locked = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared);
    assert!(locked.is_err() && !pruning.is_finished(), "it waits until the fork is made");
    repository(&path, &[&origin]);
    registration.identify().unwrap();
    drop(registration.complete());
    assert_eq!(pruning.join().unwrap(), 1);
}

/// The path of a fork says nothing about a repository that is there later.
#[test]
fn a_fork_that_was_replaced_at_its_path_still_counts_wherever_it_is() {
    let (_folder, at) = folder();
    let [origin, path, old] = ["origin", "fork", "old"].map(|name| at.join(name));
    repository(&origin, &[]);
    fork(&origin, &path, Lifetime::Permanent);
    fs::rename(&path, &old).unwrap();
    repository(&path, &[]);
    let is_moved = |state: &ForkState| matches!(state, ForkState::Unseen(why) if why.contains("may have been moved"));
    assert!(is_moved(&states(&origin)[0]));
    // Another fork, from another place, to the same path.
    fs::remove_dir_all(&path).unwrap();
    fork(&origin, &path, Lifetime::Temporary);
    let found = states(&origin);
    assert!(found.iter().any(is_moved) && found.contains(&ForkState::Present) && found.len() == 2);
    // The moved one is opened.
    let _held = renew(&old).unwrap();
    assert_eq!(states(&origin), [ForkState::Present, ForkState::Present]);
    fs::remove_dir_all(&path).unwrap();
    let left = ForksLock::take(&origin).unwrap().clean().unwrap();
    assert_eq!(left.iter().map(|fork| &fork.path).collect::<Vec<_>>(), [&old]);
}

#[test]
fn a_repository_that_is_opened_is_registered_and_a_copy_gets_its_own_id() {
    let (_folder, at) = folder();
    let [origin, middle, path, copy] = ["origin", "middle", "fork", "copy"].map(|name| at.join(name));
    repository(&origin, &[]);
    repository(&middle, &[&origin]);
    repository(&path, &[&middle]);
    for _ in 0..2 {
        let _held = renew(&path).unwrap();
        assert_eq!((states(&origin), states(&middle)), (vec![ForkState::Present], vec![ForkState::Present]));
    }
    // The origin comes from a backup.
    fs::remove_dir_all(origin.join(FOLDER)).unwrap();
    drop(renew(&path).unwrap());
    assert_eq!(states(&origin), [ForkState::Present]);
    repository(&copy, &[&middle]);
    fs::create_dir(copy.join(FOLDER)).unwrap();
    fs::copy(path.join(FOLDER).join("fork-id"), copy.join(FOLDER).join("fork-id")).unwrap();
    drop(renew(&copy).unwrap());
    drop(renew(&path).unwrap());
    assert_eq!(states(&origin), [ForkState::Present, ForkState::Present]);
    drop(renew(&origin).unwrap());
    assert!(!origin.join(FOLDER).join("fork-id").exists(), "it shares nothing");
}

/// Its folder may be in the private `/tmp` of another service or container.
#[test]
fn a_temporary_fork_that_a_process_uses_counts_although_its_folder_is_not_seen() {
    let (_folder, at) = folder();
    let [origin, path, away] = ["origin", "fork", "away"].map(|name| at.join(name));
    repository(&origin, &[]);
    let registration = start(&origin, &path, Lifetime::Temporary);
    repository(&path, &[&origin]);
    registration.identify().unwrap();
    let held = registration.complete();
    fs::rename(&path, &away).unwrap();
    assert!(matches!(&states(&origin)[..], [ForkState::Unseen(why)] if why.contains("process")));
    fs::rename(&away, &path).unwrap();
    drop(held);
    assert_eq!(states(&origin), [ForkState::Present], "gitcd fork ended");
    let held = renew(&path).unwrap();
    fs::remove_dir_all(&path).unwrap();
    drop(held);
    assert!(registered(&origin).unwrap().is_empty(), "the record is removed at exit");
}

/// Reached by two paths, it is locked once.
#[test]
fn a_repository_with_two_names_is_registered_once() {
    let (_folder, at) = folder();
    let [origin, link, middle, path] = ["origin", "link", "middle", "fork"].map(|name| at.join(name));
    repository(&origin, &[]);
    std::os::unix::fs::symlink(&origin, &link).unwrap();
    repository(&middle, &[&origin, &link]);
    fork(&middle, &path, Lifetime::Permanent);
    assert_eq!(states(&origin).len(), 1);
}

#[test]
fn relative_alternates_lead_to_the_origin() {
    let (_folder, at) = folder();
    let [origin, path] = ["origin", "fork"].map(|name| at.join(name));
    repository(&origin, &[]);
    repository(&path, &[]);
    fs::write(path.join("objects/info/alternates"), "# a comment\n../../origin/objects\n").unwrap();
    drop(renew(&path).unwrap());
    assert_eq!(states(&origin), [ForkState::Present]);
}

/// `gitcd fork --independent` was killed before it knew that the fork has all objects.
#[test]
fn a_fork_that_is_being_made_independent_counts() {
    let (_folder, at) = folder();
    let [origin, path] = ["origin", "fork"].map(|name| at.join(name));
    repository(&origin, &[]);
    fork(&origin, &path, Lifetime::Permanent);
    let (alternates, aside) = (path.join("objects/info/alternates"), path.join("objects/info/alternates.gitcd"));
    fs::rename(&alternates, &aside).unwrap();
    assert_eq!(states(&origin), [ForkState::Present]);
    fs::remove_file(&aside).unwrap();
    assert_eq!(states(&origin), [ForkState::Gone]);
}

#[test]
fn a_fork_of_a_repository_that_cannot_be_written_is_refused_unless_that_is_accepted() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_folder, at) = folder();
    let [origin, path] = ["origin", "fork"].map(|name| at.join(name));
    repository(&origin, &[]);
    fs::set_permissions(&origin, fs::Permissions::from_mode(0o555)).unwrap();
    if fs::create_dir(origin.join("probe")).is_ok() {
        println!("skipped: root can write anyway");
        return;
    }
    let start = |unregistered| Registration::start(&origin, &path, Lifetime::Permanent, unregistered);
    assert!(matches!(start(Unregistered::Refused), Err(ForksError::Register { .. })));
    drop(start(Unregistered::Accepted).unwrap());
    fs::set_permissions(&origin, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn who_may_read_the_repository_may_read_the_records() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_folder, at) = folder();
    let [origin, path] = ["origin", "fork"].map(|name| at.join(name));
    repository(&origin, &[]);
    fs::create_dir(origin.join(FOLDER)).unwrap();
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    set(&origin.join(FOLDER), 0o700);
    set(&origin.join("HEAD"), 0o640);
    fork(&origin, &path, Lifetime::Permanent);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let own = origin.join(FOLDER);
    assert_eq!([mode(&own), mode(&own.join("forks")), mode(&own.join("forks.lock"))], [0o750, 0o750, 0o640]);
    let record = fs::read_dir(own.join("forks")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(mode(&record), 0o640);
}
