//! Fields that both parents of a merge have with the same value.

use git2::Oid;
use gitcd_merge::Policy;

use crate::world::World;

const KEY: &str = "/registry/services/specs/n/a";
const MAP: &str = "/registry/configmaps/n/a";

fn service(ports: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"a","namespace":"n","uid":"u"}},"spec":{{"ports":{ports}}}}}"#
    )
}

fn thing(items: &str) -> String {
    format!(
        r#"{{"apiVersion":"example.org/v1","kind":"Thing","metadata":{{"name":"a","namespace":"n","uid":"u"}},"spec":{{"items":{items}}}}}"#
    )
}

pub(crate) fn map(data: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a","namespace":"n","uid":"u"}},"data":{{{data}}}}}"#
    )
}

/// A graph of commits that change one key.
pub(crate) struct Graph {
    pub(crate) world: World,
    key: &'static str,
    value: fn(&str) -> String,
    pub(crate) base: Oid,
}

impl Graph {
    pub(crate) fn new(key: &'static str, value: fn(&str) -> String, first: &str) -> Self {
        let mut world = World::new(1);
        world.put(0, &[(key, Some(value(first).as_bytes()))]);
        world.flush(0);
        let base = world.tip(0);
        Self { world, key, value, base }
    }

    /// Makes commits in a row, each with a value. Returns the last one.
    fn row(&mut self, mut from: Oid, values: &[&str]) -> Oid {
        for value in values {
            let value = (self.value)(value);
            from = self.world.commit(&[from], &[(self.key, Some(value.as_bytes()))], "");
        }
        from
    }

    fn merge(&mut self, parents: [Oid; 2], value: &str, notes: &str) -> Oid {
        let value = (self.value)(value);
        self.world.commit(&parents, &[(self.key, Some(value.as_bytes()))], notes)
    }

    /// Returns the writer of a field in a commit, which the branch merges.
    fn writer(&mut self, commit: Oid, path: &str) -> Oid {
        self.world.merge(0, commit, Policy::Later, &[self.key], true);
        let blame = self.world.blame(0, self.key);
        let field = blame.fields.iter().find(|field| field.path.to_string() == path);
        let field = field.unwrap_or_else(|| panic!("{path} is in {blame:?}"));
        assert!(field.also.is_empty(), "{field:?}");
        blame.origins[field.origin].commit.oid
    }
}

#[test]
fn an_item_is_the_same_in_all_versions_if_its_key_has_a_default() {
    let ports = |tcp: u8, udp: u8| {
        format!(r#"[{{"port":53,"targetPort":{tcp}}},{{"port":53,"protocol":"UDP","targetPort":{udp}}}]"#)
    };
    for is_first in [true, false] {
        let mut graph = Graph::new(KEY, service, &ports(1, 2));
        let restored = graph.row(graph.base, &[&ports(1, 3), &ports(1, 2)]);
        let other = graph.row(graph.base, &[&ports(5, 2)]);
        let parents = if is_first { [restored, other] } else { [other, restored] };
        let merge = graph.merge(parents, &ports(5, 2), "");
        assert_eq!(graph.writer(merge, "spec.ports[port=53,protocol=UDP].targetPort"), restored);
    }
}

#[test]
fn an_item_without_a_key_is_the_same_in_all_versions_wherever_it_is() {
    const X: &str = r#"{"name":"a","v":1}"#;
    const Y: &str = r#"{"name":"a","v":2}"#;
    const Z: &str = r#"{"name":"a","v":3}"#;
    for is_first in [true, false] {
        let mut graph = Graph::new(KEY, thing, &format!("[{X},{Y}]"));
        let restored = graph.row(graph.base, &[&format!("[{Y}]"), &format!("[{X},{Y}]")]);
        let other = graph.row(graph.base, &[&format!("[{Z},{X},{Y}]")]);
        let parents = if is_first { [restored, other] } else { [other, restored] };
        let merge = graph.merge(parents, &format!("[{Z},{X},{Y}]"), "");
        assert_eq!(graph.writer(merge, "spec.items[1]"), restored, "it was removed and restored");
        let mut graph = Graph::new(KEY, thing, &format!("[{X},{Y}]"));
        let unrelated = graph.row(graph.base, &[&format!("[{X},{Y},{X}]")]);
        let other = graph.row(graph.base, &[&format!("[{Z},{X},{Y}]")]);
        let parents = if is_first { [unrelated, other] } else { [other, unrelated] };
        let merge = graph.merge(parents, &format!("[{Z},{X},{Y},{X}]"), "");
        assert_eq!(graph.writer(merge, "spec.items[3]"), unrelated);
    }
}

#[test]
fn a_merge_that_left_the_key_out_is_no_part_of_its_history() {
    for is_first in [true, false] {
        let mut graph = Graph::new(MAP, map, r#""x":"1""#);
        let restored = graph.row(graph.base, &[r#""x":"5""#, r#""x":"1""#]);
        let fork = graph.world.commit(&[restored], &[("/registry/configmaps/n/other", Some(b"1"))], "");
        let ours = graph.world.commit(&[graph.base], &[("/registry/configmaps/n/more", Some(b"1"))], "");
        let scope = format!("Scope-Of: {fork}\nScope-Exclude: /configmaps/n/a$\n");
        let partial = graph.merge([ours, fork], r#""x":"1""#, &scope);
        let parents = if is_first { [partial, restored] } else { [restored, partial] };
        let merge = graph.merge(parents, r#""x":"1""#, "");
        assert_eq!(graph.writer(merge, "data.x"), restored);
        // If both sides have the partial merge, one of them by way of the other's history, it counts for neither.
        let mut graph = Graph::new(MAP, map, r#""x":"1""#);
        let restored = graph.row(graph.base, &[r#""x":"5""#, r#""x":"1""#]);
        let scope = format!("Scope-Of: {restored}\nScope-Exclude: /configmaps/n/a$\n");
        let partial = graph.merge([graph.base, restored], r#""x":"1""#, &scope);
        let more = graph.world.commit(&[partial], &[("/registry/configmaps/n/more", Some(b"1"))], "");
        let both = graph.merge([partial, restored], r#""x":"1""#, "");
        let parents = if is_first { [more, both] } else { [both, more] };
        let merge = graph.merge(parents, r#""x":"1""#, "");
        assert_eq!(graph.writer(merge, "data.x"), restored);
    }
}

/// Returns the origin of `data.x` and its independent writers: one side wrote it, and another commit of that side replaced what
/// the other side wrote. `more` commits before that write `value`.
fn replaced(more: usize, value: impl Fn(usize) -> (&'static str, String)) -> (bool, usize) {
    let mut graph = Graph::new(MAP, map, r#""x":"0""#);
    let base = graph.base;
    let one = graph.row(base, &[r#""x":"1""#]);
    let theirs = graph.row(base, &[r#""x":"1","b":"1""#]);
    let seen = graph.row(theirs, &[r#""x":"2","b":"1""#]);
    let mut ours = graph.merge([one, seen], r#""x":"1","b":"1""#, "");
    for number in 0..more {
        let (key, value) = value(number);
        ours = graph.world.commit(&[ours], &[(key, Some(value.as_bytes()))], "");
    }
    let theirs = graph.row(theirs, &[r#""x":"1","b":"1","c":"1""#]);
    let merge = graph.merge([ours, theirs], r#""x":"1","b":"1","c":"1""#, "");
    graph.world.merge(0, merge, Policy::Later, &[MAP], true);
    let blame = graph.world.blame(0, MAP);
    let field = blame.fields.iter().find(|field| field.path.to_string() == "data.x").expect("the field exists");
    (blame.origins[field.origin].commit.oid == one, field.also.len())
}

#[test]
fn beyond_the_limits_of_a_merge_both_parents_are_followed() {
    let edit = |number: usize| (MAP, map(&format!(r#""x":"1","b":"1","y":"{number}""#)));
    let other = |number: usize| ("/registry/configmaps/n/other", number.to_string());
    assert_eq!(replaced(10, edit), (true, 0));
    assert_eq!(replaced(256, edit), (false, 1), "more edits of the key than a merge considers");
    assert_eq!(replaced(10, other), (true, 0));
    assert_eq!(replaced(4096, other), (false, 1), "more commits than a merge reads");
}

#[test]
fn an_octopus_merge_follows_all_parents() {
    let mut graph = Graph::new(MAP, map, r#""x":"1""#);
    let restored = graph.row(graph.base, &[r#""x":"5""#, r#""x":"1""#]);
    let y = graph.row(graph.base, &[r#""x":"1","y":"1""#]);
    let z = graph.row(graph.base, &[r#""x":"1","z":"1""#]);
    let value = map(r#""x":"1","y":"1","z":"1""#);
    let merge = graph.world.commit(&[y, restored, z], &[(MAP, Some(value.as_bytes()))], "");
    for (path, writer) in [("data.x", restored), ("data.y", y), ("data.z", z), ("kind", graph.base)] {
        assert_eq!(graph.writer(merge, path), writer, "{path}");
    }
}

#[test]
fn clocks_that_are_wrong_do_not_change_the_writers() {
    for skew in [0, -100_000_000, -3, 3, 100_000_000] {
        let mut graph = Graph::new(MAP, map, r#""x":"1","w":"1""#);
        let base = graph.base;
        let commit = |graph: &Graph, skew: i64, parents: &[Oid], data: &str| {
            graph.world.commit_at(1_700_000_100 + skew, parents, &[(MAP, Some(map(data).as_bytes()))], "")
        };
        let changed = commit(&graph, skew, &[base], r#""x":"5","w":"1""#);
        let restored = commit(&graph, -skew, &[changed], r#""x":"1","w":"1""#);
        let other = commit(&graph, skew / 2, &[base], r#""x":"1","w":"1","y":"1""#);
        let merge = commit(&graph, -skew / 2, &[restored, other], r#""x":"1","w":"1","y":"1""#);
        for (path, writer) in [("data.x", restored), ("data.w", base), ("data.y", other)] {
            assert_eq!(graph.writer(merge, path), writer, "{path} with {skew}");
        }
    }
}

#[test]
fn a_merge_brings_the_commits_of_the_other_branch_and_nothing_else() {
    let mut graph = Graph::new(MAP, map, r#""x":"1""#);
    let one = graph.row(graph.base, &[r#""x":"2""#]);
    let two = graph.row(one, &[r#""x":"3""#]);
    let own = graph.world.put(0, &[("/registry/configmaps/n/b", Some(map("").as_bytes()))]);
    let merge = graph.world.merge(0, two, Policy::Later, &[MAP], false);
    let history = graph.world.history(0);
    let find = |commit: Oid| history.find_commit(&commit.to_string()).expect("the branch has it");
    let brought = |commit: Oid, limit| history.brought_by(&find(commit), limit).expect("the history can be read");
    let limited = brought(merge, 1);
    assert_eq!((limited.commits.len(), limited.commits[0].commit.oid, limited.has_more), (1, two, true));
    let brought = |commit: Oid, limit| {
        let brought = brought(commit, limit);
        assert!(!brought.has_more);
        brought.commits
    };
    assert_eq!(brought(merge, 2).len(), 2);
    let brought_by_merge = brought(merge, usize::MAX);
    assert_eq!(brought_by_merge.iter().map(|commit| commit.commit.oid).collect::<Vec<_>>(), [two, one]);
    let changes = history.changes_of(&brought_by_merge[1]).expect("the history can be read");
    assert_eq!(changes.keys.len(), 1, "{changes:?}");
    for commit in [own, two] {
        assert!(brought(commit, usize::MAX).is_empty());
    }
}

/// The clock was set back after the fork, so the commits since then are older than those before it.
#[test]
fn a_merge_brings_nothing_that_the_branch_had_whatever_the_clocks_say() {
    let mut graph = Graph::new(MAP, map, r#""x":"1""#);
    let mut fork = graph.base;
    for number in 0..8 {
        fork = graph.world.commit_at(2_000_000_000 + number, &[fork], &[(graph.key, Some(map("").as_bytes()))], "");
    }
    let (mut own, theirs) = (fork, graph.world.commit_at(1_900_000_500, &[fork], &[(graph.key, None)], ""));
    for number in 0..12 {
        let other = ("/registry/configmaps/n/b", format!("{number}"));
        own = graph.world.commit_at(1_900_000_000 + number, &[own], &[(other.0, Some(other.1.as_bytes()))], "");
    }
    let merge = graph.world.commit_at(1_900_001_000, &[own, theirs], &[(graph.key, None)], "");
    graph.world.merge(0, merge, Policy::Later, &[MAP, "/registry/configmaps/n/b"], true);
    let history = graph.world.history(0);
    let found = history.find_commit(&merge.to_string()).expect("the branch has it");
    assert_eq!(found.before, Some(own));
    let brought = history.brought_by(&found, 5).expect("the history can be read");
    assert_eq!(brought.commits.iter().map(|commit| commit.commit.oid).collect::<Vec<_>>(), [theirs]);
}
