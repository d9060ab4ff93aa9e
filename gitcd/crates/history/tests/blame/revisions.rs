//! Revisions and branches of the commits that wrote fields.

use git2::Oid;
use gitcd_history::blame::{Blame, Options, Origin};
use gitcd_history::when::When;
use gitcd_merge::Policy;

use crate::world::World;

const MAP: &str = "/registry/configmaps/n/a";
const OTHER: &str = "/registry/configmaps/n/other";
/// A key outside the prefix.
const LOCAL: &str = "/elsewhere/a";

fn map(data: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a","namespace":"n","uid":"u"}},"data":{{{data}}}}}"#
    )
}

fn put(world: &mut World, branch: usize, key: &str, value: &str) -> Oid {
    let commit = world.put(branch, &[(key, Some(value.as_bytes()))]);
    world.flush(branch);
    commit
}

fn of<'b>(blame: &'b Blame, path: &str) -> &'b Origin {
    let field = blame.fields.iter().find(|field| field.path.to_string() == path);
    &blame.origins[field.unwrap_or_else(|| panic!("{path} is in {blame:?}")).origin]
}

fn revision(origin: &Origin) -> Option<i64> {
    origin.revisions.filter(|own| own.first == own.last).map(|own| own.last)
}

#[test]
fn each_change_of_another_branch_has_the_revision_that_it_got_here() {
    let mut world = World::new(2);
    put(&mut world, 0, MAP, &map(""));
    let base = world.tip(0);
    world.merge(1, base, Policy::Later, &[MAP], true);
    let mut written = Vec::new();
    for (number, data) in [r#""x":"1""#, r#""x":"1","y":"1""#, r#""x":"1","y":"1","z":"1""#].into_iter().enumerate() {
        put(&mut world, 0, OTHER, &number.to_string());
        let theirs = put(&mut world, 1, MAP, &map(data));
        world.merge(0, theirs, Policy::Later, &[MAP, OTHER], false);
        written.push((theirs, world.revision(0)));
    }
    let log = world.history(0).versions(MAP.as_bytes(), 10, None).expect("the history is complete");
    let log: Vec<_> = log.iter().rev().skip(1).map(|version| (version.commit.oid, version.revision)).collect();
    assert_eq!(log, written.iter().map(|(commit, revision)| (*commit, Some(*revision))).collect::<Vec<_>>());
    let blame = world.blame(0, MAP);
    for (path, (commit, expected)) in ["data.x", "data.y", "data.z"].into_iter().zip(written) {
        let origin = of(&blame, path);
        assert_eq!((origin.commit.oid, revision(origin), origin.is_own), (commit, Some(expected), false), "{path}");
        assert_eq!(origin.branch.as_deref(), Some("b1"));
    }
}

#[test]
fn a_commit_within_a_flush_from_which_another_branch_forked_is_of_this_branch() {
    let mut world = World::new(1);
    put(&mut world, 0, MAP, &map(""));
    let first = world.put(0, &[(MAP, Some(map(r#""x":"1""#).as_bytes()))]);
    put(&mut world, 0, OTHER, "1");
    let ann = world.commit(&[first], &[(MAP, Some(map(r#""x":"1","y":"1""#).as_bytes()))], "");
    world.merge(0, ann, Policy::Later, &[MAP, OTHER], false);
    let blame = world.blame(0, MAP);
    let x = of(&blame, "data.x");
    assert_eq!((x.commit.oid, revision(x), x.is_own, x.branch.as_deref()), (first, Some(3), true, Some("b0")));
    let y = of(&blame, "data.y");
    assert_eq!((y.commit.oid, revision(y), y.is_own, y.branch.as_deref()), (ann, Some(5), false, None));
}

#[test]
fn a_commit_of_the_future_has_the_revision_of_its_merge() {
    let mut world = World::new(1);
    put(&mut world, 0, MAP, &map(r#""x":"1""#));
    let base = world.tip(0);
    let future = world.commit_at(4_000_000_000, &[base], &[(MAP, Some(map(r#""x":"1","y":"1""#).as_bytes()))], "");
    put(&mut world, 0, MAP, &map(r#""x":"2""#));
    world.merge(0, future, Policy::Later, &[MAP], false);
    let merged = world.revision(0);
    put(&mut world, 0, OTHER, "1");
    let blame = world.blame(0, MAP);
    let y = of(&blame, "data.y");
    assert_eq!((y.commit.oid, revision(y), y.is_own), (future, Some(merged), false));
    assert_eq!(revision(of(&blame, "data.x")), Some(merged - 1));
}

#[test]
fn adopted_history_is_of_this_branch_and_its_last_version_has_a_revision() {
    let mut world = World::new(1);
    put(&mut world, 0, MAP, &map(r#""x":"1""#));
    let base = world.tip(0);
    let side = world.commit(&[base], &[(MAP, Some(map(r#""x":"1","side":"1""#).as_bytes()))], "");
    let main = world.commit(&[base], &[(OTHER, Some(b"1"))], "");
    let merge = world.commit(&[main, side], &[(MAP, Some(map(r#""x":"1","side":"1""#).as_bytes()))], "");
    let last = world.commit(&[merge], &[(MAP, Some(map(r#""x":"1","side":"1","y":"1""#).as_bytes()))], "");
    world.reference("refs/heads/side", side);
    world.reference("refs/remotes/up/adopted", last);
    let history = world.adopt(last);
    let moment = history.at(When::Now).expect("the branch exists");
    let blame = history.blame(&moment, MAP.as_bytes(), &Options::default()).expect("the key exists");
    let log = history.versions(MAP.as_bytes(), 1, None).expect("the history is complete");
    let y = of(&blame, "data.y");
    assert_eq!((y.commit.oid, revision(y), y.branch.as_deref()), (last, log[0].revision, Some("adopted")));
    assert!(log[0].revision.is_some() && log[0].commit.oid == last, "{log:?}");
    let x = of(&blame, "data.x");
    assert_eq!((x.commit.oid, revision(x), x.branch.as_deref()), (base, None, Some("adopted")));
    let side_field = of(&blame, "data.side");
    assert_eq!((side_field.commit.oid, revision(side_field), side_field.branch.as_deref()), (side, None, Some("side")));
}

#[test]
fn a_value_that_was_deleted_and_created_again_in_one_commit_starts_anew() {
    let mut world = World::new(1);
    put(&mut world, 0, MAP, "{\"x\":1}");
    let again = world.put(0, &[(MAP, None), (MAP, Some(b"{\"x\":1}")), (OTHER, Some(b"1"))]);
    world.flush(0);
    put(&mut world, 0, MAP, "{\"x\":1,\"y\":1}");
    let blame = world.blame(0, MAP);
    assert_eq!(of(&blame, "x").commit.oid, again);
    // A key that is stored with the metadata has a version for each flush.
    put(&mut world, 0, LOCAL, "{\"x\":1}");
    world.put(0, &[(LOCAL, None), (LOCAL, Some(b"{\"x\":1}"))]);
    world.flush(0);
    let again = world.revision(0);
    put(&mut world, 0, LOCAL, "{\"x\":1,\"y\":1}");
    assert_eq!(revision(of(&world.blame(0, LOCAL), "x")), Some(again));
}
