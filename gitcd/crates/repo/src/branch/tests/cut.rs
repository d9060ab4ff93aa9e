//! External changes of a branch whose history was cut.

use super::*;
use crate::boundary::{Boundary, Cut};
use crate::graph::Graph;

/// Returns a store with a cut history, and a commit that was removed.
fn cut() -> (Store, Oid) {
    let mut store = Store::new();
    let mut heads = Vec::new();
    for value in ["1", "2", "3", "4"] {
        store.commit(&[("/registry/a", Some(value))]);
        heads.push(store.flush().pair);
    }
    let repository = Repository::open(&store.path).unwrap();
    let tips = [DATA, METADATA].map(|name| repository.refname_to_id(name).unwrap());
    let oldest = heads[2];
    let plan = Graph::lenient().plan_cut(&repository, &[oldest.data, oldest.metadata], &tips).unwrap();
    assert!(plan.removed.contains(&heads[0].data));
    let cut = Cut { reference: DATA.into(), revision: 4, data: oldest.data, at: 0, archive: String::new() };
    plan.record(&store.path, &cut).unwrap();
    plan.apply(&store.path).unwrap();
    (store, heads[0].data)
}

fn by_hand(store: &Store, parents: &[&str]) -> String {
    let author = ["-c", "user.name=p", "-c", "user.email=p@localhost"];
    let parents: Vec<&str> = parents.iter().flat_map(|parent| ["-p", *parent]).collect();
    let commit = [&author[..], &["commit-tree", "-m", "by hand", "main^{tree}"], &parents[..]].concat();
    store.git(&commit).trim().to_owned()
}

/// A person with a clone from before the cut merged a line of commits that starts at a removed one, and pushed the merge.
#[test]
fn an_external_merge_of_what_continues_from_a_removed_commit_is_to_be_merged() {
    let (mut store, removed) = cut();
    let side = by_hand(&store, &[&removed.to_string()]);
    let foreign = by_hand(&store, &[DATA, &side]);
    store.git(&["update-ref", DATA, &foreign]);
    store.commit(&[("/registry/a", Some("5"))]);
    store.flush();
    let found = store.branch.foreign().expect("the external commit is reported");
    assert_eq!((found.to_string(), store.reference(DATA)), (foreign.clone(), foreign.clone()));
    store.reopen();
    assert_eq!(store.branch.foreign(), Some(found));

    // The merge restores the removed commit.
    Boundary::restore(&store.path, &[removed]).unwrap();
    let revisions = Revisions { first: 9, last: 8, time: SystemTime::now(), clients: Vec::new(), changes: Vec::new() };
    let merging = Merging { revisions, theirs: found, blobs: HashMap::new(), fast_forward: true, notes: String::new() };
    assert_eq!(store.branch.merge(&merging), Ok(Joined::Merged));
    store.flush();
    assert_eq!(store.branch.foreign(), None);
    assert_eq!(store.git(&["merge-base", DATA, &foreign]).trim(), foreign);
    let model = store.loaded();
    store.reopen();
    assert_eq!((store.branch.foreign(), store.loaded()), (None, model));
    store.git(&["fsck", "--full", "--strict"]);
}

#[test]
fn a_reference_that_was_moved_back_beyond_the_cut_is_left_alone() {
    for is_restored in [false, true] {
        let (mut store, removed) = cut();
        if is_restored {
            Boundary::restore(&store.path, &[removed]).unwrap();
        }
        store.git(&["update-ref", DATA, &removed.to_string()]);
        store.commit(&[("/registry/a", Some("5"))]);
        let state = store.state.clone();
        let error = store.branch.flush(&state).unwrap_err();
        assert!(matches!(error, FlushError::ForeignChange { .. }), "{error}");
        let error = Branch::open(config(&store.path)).unwrap_err();
        assert!(matches!(error, OpenError::ForeignChange { .. }), "{error}");
        assert_eq!(store.reference(DATA), removed.to_string());
    }
}
