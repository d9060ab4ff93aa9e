//! The cost of transactions, and the effects of operations on the same keys.

use std::collections::BTreeMap;

use gitcd_journal::Segments;
use proptest::prelude::*;

use super::*;

fn name(number: usize) -> Bytes {
    Bytes::from(format!("k{number:06}"))
}

fn put(key: Bytes) -> Op {
    Op::Put(Put { key, value: Some(Bytes::new()), lease: Some(0), previous: false })
}

fn delete(keys: KeyRange) -> Op {
    Op::Delete(Delete { keys, previous: false })
}

fn nested(success: Vec<Op>) -> Op {
    Op::Txn(Txn { compares: Vec::new(), success, failure: Vec::new() })
}

/// Creates an index with this many keys.
fn index(keys: usize) -> Index {
    let mut index = Index::new(Revision::INITIAL);
    let revision = index.revision().next();
    let versions = (0..keys).map(|number| Arc::new(Version::put(name(number), revision, revision, 1, 0, Bytes::new())));
    index.apply(versions.collect(), 0, None);
    index
}

/// Returns the changes of `op`, and how many changes it looked at.
fn run(index: &Index, op: &Op) -> (Vec<Arc<Version>>, usize) {
    let segments = Segments::default();
    let view = View { index, at: index.revision(), segments: &segments };
    let chosen = choose(op, view).unwrap();
    let mut run = Run { view, now: view.at.next(), written: Written::default() };
    run.execute(chosen).unwrap();
    let looked_at = run.written.looked_at.get();
    (run.written.into_order(), looked_at)
}

#[test]
fn what_a_deletion_looks_at_grows_with_the_keys_and_no_faster() {
    let everything = || KeyRange::From(Bytes::new());
    let half = |keys| KeyRange::From(name(keys / 2));
    let outside = || put(Bytes::from_static(b"a"));
    let cases: [&dyn Fn(usize) -> Op; 4] = [
        &|_| delete(everything()),
        &|_| nested(vec![outside(), delete(everything())]),
        &|keys| nested(vec![delete(half(keys)), nested(vec![delete(everything())]), outside()]),
        &|keys| nested(vec![nested(vec![delete(KeyRange::One(name(0))), delete(half(keys))]), delete(everything())]),
    ];
    for (number, case) in cases.iter().enumerate() {
        let looked_at = [1000, 2000].map(|keys| {
            let (changes, looked_at) = run(&index(keys), &case(keys));
            assert!(changes.iter().filter(|change| change.is_tombstone()).count() >= keys, "case {number}");
            looked_at
        });
        assert!(looked_at[1] <= 2 * looked_at[0] + 10, "case {number}: {looked_at:?}");
        assert!(looked_at[1] <= 4 * 2000, "case {number}: {looked_at:?}");
    }
}

/// The limit on operations applies to each branch: three levels of 42 allow 74,088 operations.
#[test]
fn what_operations_of_nested_transactions_look_at_grows_with_their_number_and_no_faster() {
    let range = |key| {
        let keys = KeyRange::One(key);
        let filter = crate::query::Filter::default();
        Op::Range(Range { keys, revision: None, limit: 0, count_only: false, sort: None, filter, known_count: None })
    };
    let cases: [&dyn Fn(usize) -> Op; 3] =
        [&|number| put(name(number)), &|number| delete(KeyRange::One(name(number))), &|number| range(name(number))];
    for (number, case) in cases.iter().enumerate() {
        let looked_at = [500, 1000].map(|count| {
            let ops = (0..count).flat_map(|number| [put(name(number + 5000)), case(number)]).collect::<Vec<_>>();
            let (changes, looked_at) =
                run(&index(1000), &nested(ops.chunks(40).map(|ops| nested(ops.to_vec())).collect()));
            assert!(changes.len() >= count, "case {number}");
            looked_at
        });
        assert!(looked_at[1] <= 2 * looked_at[0] + 10, "case {number}: {looked_at:?}");
        assert!(looked_at[1] <= 8 * 1000, "case {number}: {looked_at:?}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize),
    Delete(usize, usize),
}

proptest! {
    #[test]
    fn each_operation_sees_the_ones_before_it(
        steps in proptest::collection::vec(
            prop_oneof![
                (0_usize..8).prop_map(Step::Put),
                (0_usize..8, 0_usize..5).prop_map(|(start, count)| Step::Delete(start, count)),
            ],
            1..12,
        )
    ) {
        let index = index(5);
        // Key to version. Versions count on from the state before the transaction, unless the key was deleted in between.
        let mut model: BTreeMap<Bytes, i64> = (0..5).map(|number| (name(number), 1)).collect();
        let mut changed: BTreeMap<Bytes, i64> = BTreeMap::new();
        let ops = steps.iter().map(|step| match *step {
            Step::Put(number) => {
                let version = model.get(&name(number)).copied().unwrap_or(0) + 1;
                model.insert(name(number), version);
                changed.insert(name(number), version);
                put(name(number))
            }
            Step::Delete(start, count) => {
                let keys = KeyRange::Span(name(start), name(start + count));
                for number in start..start + count {
                    if model.remove(&name(number)).is_some() {
                        changed.insert(name(number), 0);
                    }
                }
                delete(keys)
            }
        });
        let op = nested(ops.collect());
        let (changes, _) = run(&index, &op);
        let found: BTreeMap<_, _> = changes.iter().map(|change| (change.key.clone(), change.version)).collect();
        prop_assert_eq!(found.len(), changes.len(), "at most one change of a key");
        prop_assert_eq!(found, changed);
    }
}
