//! Crashes between two steps, and other people's changes.

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

    // The pack is written, no reference has moved.
    std::fs::write(&pair_file, &pair).unwrap();
    store.git(&["update-ref", METADATA, &metadata]);
    store.git(&["update-ref", DATA, &data]);
    store.reopen();
    assert_eq!(store.loaded(), before);

    // The metadata reference has moved, and nobody can tell from where.
    store.git(&["update-ref", METADATA, &new_metadata]);
    std::fs::write(&pair_file, "gitcd pair 1\n").unwrap();
    let error = Branch::open(config(&store.path)).unwrap_err();
    assert!(error.to_string().contains("is damaged"), "{error}");
    assert_eq!(store.reference(DATA), data);

    // The metadata reference has moved.
    std::fs::write(&pair_file, &pair).unwrap();
    store.git(&["update-ref", METADATA, &new_metadata]);
    store.reopen();
    assert_eq!(store.reference(DATA), new_data);
    assert_eq!(store.loaded(), (store.state.clone(), store.model.clone()));

    // Both have, the pair is not recorded.
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

    // A pack without references is as good as nothing.
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

#[test]
fn somebody_elses_commit_is_noticed_and_left_alone() {
    let mut store = Store::new();
    store.commit(&[("/registry/a", Some("1"))]);
    store.flush();
    let metadata = store.reference(METADATA);
    let foreign = store.git(&[
        "-c",
        "user.name=p",
        "-c",
        "user.email=p@localhost",
        "commit-tree",
        "-m",
        "by hand",
        "-p",
        DATA,
        "main^{tree}",
    ]);
    store.git(&["update-ref", DATA, foreign.trim()]);

    store.commit(&[("/registry/a", Some("2"))]);
    let state = store.state.clone();
    let error = store.branch.flush(&state).unwrap_err();
    assert!(matches!(error, FlushError::ForeignChange { .. }), "{error}");
    assert!(matches!(store.branch.flush(&state), Err(FlushError::Failed)));
    assert_eq!((store.reference(METADATA), store.reference(DATA)), (metadata, foreign.trim().to_owned()));

    let error = Branch::open(config(&store.path)).unwrap_err();
    assert!(matches!(error, OpenError::ForeignChange { .. }) && error.to_string().contains(foreign.trim()), "{error}");
    // Even one that looks like a half-done move with another recorded pair.
    std::fs::remove_file(store.path.join("gitcd/default/pair")).unwrap();
    assert!(matches!(Branch::open(config(&store.path)), Err(OpenError::ForeignChange { .. })));
}
