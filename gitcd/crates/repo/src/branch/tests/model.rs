//! Random sequences of changes, compared with a map.

use proptest::prelude::*;

use super::*;

/// Bytes that a failed test prints as text.
#[derive(Clone, PartialEq, Eq)]
struct Text(Vec<u8>);

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

fn key() -> impl Strategy<Value = Text> {
    let names = prop::sample::select(vec!["a", "b", "pods", "", ".git", "c.d", "x y", "\u{e9}"]);
    prop_oneof![
        8 => proptest::collection::vec(names, 1..4).prop_map(|names| format!("/registry/{}", names.join("/")).into_bytes()),
        4 => (0..120u32).prop_map(|n| format!("/registry/things/ns{}/thing-{n}", n % 3).into_bytes()),
        1 => Just(b"compact_rev_key".to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 1..4),
        1 => (300..500usize).prop_map(|len| [b"/registry/long/".to_vec(), vec![b'n'; len]].concat()),
    ]
    .prop_map(Text)
}

fn value() -> impl Strategy<Value = Option<Text>> {
    prop_oneof![
        1 => Just(None),
        3 => (0..50u32, 0..9u32).prop_map(|(n, m)| {
            Some(format!(r#"{{"kind":"Pod","metadata":{{"name":"n{m}","resourceVersion":"{n}","labels":{{"a":"b","c":"d"}}}},"list":[{n},{m}]}}
"#).into_bytes())
        }),
        1 => proptest::collection::vec(any::<u8>(), 0..60).prop_map(Some),
    ]
    .prop_map(|value| value.map(Text))
}

#[derive(Debug, Clone)]
enum Step {
    Commit(Vec<(Text, Option<Text>)>),
    Flush,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => proptest::collection::vec((key(), value()), 1..5).prop_map(Step::Commit),
        1 => proptest::collection::vec((key(), value()), 50..120).prop_map(Step::Commit),
        1 => proptest::collection::vec(key().prop_map(|key| (key, None)), 50..120).prop_map(Step::Commit),
        2 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn a_branch_contains_what_was_put_into_it(steps in proptest::collection::vec(step(), 1..60)) {
        let mut store = Store::new();
        for step in steps {
            match step {
                Step::Commit(changes) => {
                    let changes: Vec<_> = changes.iter().map(|(key, value)| (&key.0[..], value.as_ref().map(|value| &value.0[..]))).collect();
                    store.commit_bytes(&changes);
                }
                Step::Flush => {
                    store.flush();
                    prop_assert_eq!(&store.loaded().1, &store.model);
                }
                Step::Reopen => {
                    store.flush();
                    store.reopen();
                }
            }
        }
        store.flush();
        store.check();
    }
}
