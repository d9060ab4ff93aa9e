//! Crashes between two steps, and external changes.

use super::*;

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

    // The pack is written, but no reference has moved.
    std::fs::write(&pair_file, &pair).unwrap();
    store.git(&["update-ref", METADATA, &metadata]);
    store.git(&["update-ref", DATA, &data]);
    store.reopen();
    assert_eq!(store.loaded(), before);

    // The metadata reference has moved, but the record is damaged.
    store.git(&["update-ref", METADATA, &new_metadata]);
    std::fs::write(&pair_file, "gitcd pair 1\n").unwrap();
    let error = Branch::open(config(&store.path)).unwrap_err();
    assert!(error.to_string().contains("is damaged"), "{error}");
    assert_eq!(store.reference(DATA), data);

    // The metadata reference has moved, and the data reference has not.
    std::fs::write(&pair_file, &pair).unwrap();
    store.git(&["update-ref", METADATA, &new_metadata]);
    store.reopen();
    assert_eq!(store.reference(DATA), new_data);
    assert_eq!(store.loaded(), (store.state.clone(), store.model.clone()));

    // Both have moved, but the heads are not recorded.
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

    // A pack without references has no effect.
    store.git(&["update-ref", "-d", DATA]);
    store.git(&["update-ref", "-d", METADATA]);
    let vanished = Branch::open(config(&store.path)).unwrap_err();
    assert!(matches!(vanished, OpenError::Vanished { .. }), "{vanished}");
    std::fs::remove_file(store.path.join("gitcd/default/pair")).unwrap();
    assert!(Branch::open(config(&store.path)).unwrap().is_none());
    store.branch = Branch::create(config(&store.path), &store.state).unwrap();
    assert_eq!(store.loaded(), (store.state.clone(), Model::new()));
    store.git(&["fsck", "--full", "--strict"]);
}

fn by_hand(store: &Store, tree: &str, parent: &str) -> String {
    let author = ["-c", "user.name=p", "-c", "user.email=p@localhost"];
    let commit = ["commit-tree", "-m", "by hand", "-p", parent, tree];
    store.git(&[&author[..], &commit[..]].concat()).trim().to_owned()
}

#[test]
fn an_external_commit_stays_on_the_reference_until_it_is_merged() {
    let mut store = Store::new();
    store.commit(&[("/registry/a", Some("1"))]);
    store.flush();
    let foreign = by_hand(&store, "main^{tree}", DATA);
    store.git(&["update-ref", DATA, &foreign]);

    store.commit(&[("/registry/a", Some("2"))]);
    let metadata = store.reference(METADATA);
    store.flush();
    assert_ne!(store.reference(METADATA), metadata, "the metadata has moved on");
    assert_eq!(store.reference(DATA), foreign);
    store.branch = Branch::open(config(&store.path)).unwrap().unwrap();
    let theirs = store.branch.foreign().expect("the external commit is reported");
    assert_eq!(theirs.to_string(), foreign);

    let revisions = Revisions { first: 9, last: 8, time: SystemTime::now(), clients: Vec::new(), changes: Vec::new() };
    let merging = Merging { revisions, theirs, blobs: HashMap::new(), fast_forward: true, notes: String::new() };
    assert_eq!(store.branch.merge(&merging), Ok(Joined::Merged));
    store.flush();
    assert_eq!(store.branch.foreign(), None);
    assert_eq!(store.git(&["merge-base", DATA, &foreign]).trim(), foreign);
    assert_eq!(store.reference(DATA), store.branch.head().data.to_string());
    let model = store.loaded();
    store.branch = Branch::open(config(&store.path)).unwrap().unwrap();
    assert_eq!(store.loaded(), model);
    store.git(&["fsck", "--full", "--strict"]);
}

#[test]
fn a_crash_before_the_reference_leaves_a_merged_commit_is_completed() {
    let mut store = Store::new();
    store.commit(&[("/registry/a", Some("1"))]);
    store.flush();
    let foreign = by_hand(&store, "main^{tree}", DATA);
    store.git(&["update-ref", DATA, &foreign]);
    let pair = std::fs::read(store.path.join("gitcd/default/pair")).unwrap();
    store.commit(&[("/registry/a", Some("2"))]);
    store.flush();
    let revisions = Revisions { first: 9, last: 8, time: SystemTime::now(), clients: Vec::new(), changes: Vec::new() };
    let theirs = store.branch.foreign().unwrap();
    let merging = Merging { revisions, theirs, blobs: HashMap::new(), fast_forward: true, notes: String::new() };
    store.branch.merge(&merging).unwrap();
    store.flush();
    let merged = store.reference(DATA);
    // As if the data reference had not been moved yet.
    store.git(&["update-ref", DATA, &foreign]);
    std::fs::write(store.path.join("gitcd/default/pair"), pair).unwrap();
    store.branch = Branch::open(config(&store.path)).unwrap().unwrap();
    assert_eq!((store.reference(DATA), store.branch.foreign()), (merged, None));
}

#[test]
fn a_reference_that_was_moved_back_is_left_alone() {
    let mut store = Store::new();
    store.commit(&[("/registry/a", Some("1"))]);
    store.flush();
    let (metadata, before) = (store.reference(METADATA), store.reference("main~1"));
    store.git(&["update-ref", DATA, &before]);
    store.commit(&[("/registry/a", Some("2"))]);
    let state = store.state.clone();
    let error = store.branch.flush(&state).unwrap_err();
    assert!(matches!(error, FlushError::ForeignChange { .. }), "{error}");
    assert!(matches!(store.branch.flush(&state), Err(FlushError::Failed)));
    assert_eq!((store.reference(METADATA), store.reference(DATA)), (metadata, before.clone()));
    let error = Branch::open(config(&store.path)).unwrap_err();
    assert!(matches!(error, OpenError::ForeignChange { .. }) && error.to_string().contains(&before), "{error}");
}

#[test]
fn data_that_was_fetched_before_its_metadata_catches_up_in_a_clone() {
    let mut store = Store::new();
    store.commit(&[("/registry/a", Some("1"))]);
    store.flush();
    let (described, before) = (store.reference(DATA), store.reference("main~1"));
    store.git(&["update-ref", DATA, &before]);
    // A clone that was never served has no record.
    std::fs::remove_file(store.path.join("gitcd/default/pair")).unwrap();
    store.branch = Branch::open(config(&store.path)).unwrap().unwrap();
    assert_eq!((store.reference(DATA), store.branch.foreign()), (described, None));
}
