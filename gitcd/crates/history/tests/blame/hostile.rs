//! Blame of large objects and long histories takes time in proportion to their size.

use std::time::{Duration, Instant};

use git2::Oid;
use gitcd_history::blame::Options;
use gitcd_history::when::When;
use gitcd_merge::Policy;

use crate::world::World;

const KEY: &str = "/registry/configmaps/n/a";
const OTHER: &str = "/registry/configmaps/n/other";
const FACTOR: usize = 8;
/// How much more time the larger input may take. In proportion it would be [`FACTOR`], with the square of the size 64.
const MOST: u32 = 3 * FACTOR as u32;
/// Time that is too short to compare on a busy machine.
const SHORT: Duration = Duration::from_millis(300);
const TRIES: usize = 5;

/// Requires that a blame takes time in proportion to the size of a history.
fn in_proportion(size: usize, make: impl Fn(usize) -> World, field: Option<&str>) {
    let worlds = [make(size), make(FACTOR * size)];
    let field = field.map(|field| field.parse().expect("it is a path"));
    let options = Options { field, ..Options::default() };
    let mut found = Vec::new();
    for _ in 0..TRIES {
        let times = worlds.each_ref().map(|world| {
            let start = Instant::now();
            let blame = world.blame_with(0, KEY, When::Now, &options).expect("the key exists");
            assert!(!blame.fields.is_empty());
            start.elapsed()
        });
        println!("{size} and {FACTOR} times as many: {times:.1?}");
        if times[1] < MOST * times[0] + SHORT {
            return;
        }
        found.push(times);
    }
    panic!("{found:?}");
}

fn map(keys: usize, x: &str, y: &str) -> String {
    let keys = (0..keys).fold(String::new(), |all, key| all + &format!("\"k{key}\":\"v\","));
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a","uid":"u"}},"data":{{{keys}"x":"{x}","y":"{y}"}}}}"#
    )
}

fn started(value: &str) -> (World, Oid) {
    let mut world = World::new(1);
    world.put(0, &[(KEY, Some(value.as_bytes()))]);
    world.flush(0);
    let base = world.tip(0);
    (world, base)
}

/// A map with many keys, of which two branches each changed one.
fn many_fields(keys: usize) -> World {
    let (mut world, base) = started(&map(keys, "0", "0"));
    let one = world.commit(&[base], &[(KEY, Some(map(keys, "1", "0").as_bytes()))], "");
    let other = world.commit(&[base], &[(KEY, Some(map(keys, "0", "1").as_bytes()))], "");
    let merge = world.commit(&[one, other], &[(KEY, Some(map(keys, "1", "1").as_bytes()))], "");
    world.merge(0, merge, Policy::Later, &[KEY], true);
    world
}

/// Many fields below a long name.
fn long_paths(keys: usize) -> World {
    let below = (0..keys).fold(String::new(), |all, key| all + &format!("\"{key}\":1,"));
    started(&format!(r#"{{"apiVersion":"v1","kind":"Thing","{}":{{{below}"last":1}}}}"#, "n".repeat(12_000))).0
}

/// A branch that merged another one many times, which never merged it.
fn one_direction(merges: usize) -> World {
    let (mut world, base) = started(&map(1, "0", "0"));
    let (mut main, mut side) = (base, base);
    for number in 0..merges {
        let value = number.to_string();
        main = world.commit(&[main], &[("/registry/configmaps/n/main", Some(value.as_bytes()))], "");
        side = world.commit(&[side], &[(OTHER, Some(value.as_bytes()))], "");
        main = world.commit(&[main, side], &[(OTHER, Some(value.as_bytes()))], "");
    }
    world.merge(0, main, Policy::Later, &[KEY, OTHER], true);
    world
}

/// A branch whose every change came with a merge of its own.
fn many_arrivals(merges: usize) -> World {
    let mut world = World::new(2);
    let value = |count: usize| {
        let keys = (0..count).fold(String::new(), |all, key| all + &format!("\"k{key}\":\"v\","));
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a","uid":"u"}},"data":{{{keys}"x":"0"}}}}"#
        )
    };
    world.put(0, &[(KEY, Some(value(0).as_bytes()))]);
    world.flush(0);
    let base = world.tip(0);
    world.merge(1, base, Policy::Later, &[KEY], true);
    for number in 1..=merges {
        // Only some of them change the key, so that the fields do not grow with the square.
        let key = if number % 16 == 0 { KEY } else { OTHER };
        let theirs = world.put(1, &[(key, Some(value(number / 16).as_bytes()))]);
        world.put(0, &[("/registry/configmaps/n/main", Some(number.to_string().as_bytes()))]);
        world.flush(1);
        world.merge(0, theirs, Policy::Later, &[KEY, OTHER], false);
    }
    world
}

/// Returns values that are difficult to read or to print.
fn values() -> Vec<Vec<u8>> {
    let deep = |open: &str, end: &str, count: usize| format!("{{\"x\":{}1{}}}", open.repeat(count), end.repeat(count));
    let mut all: Vec<Vec<u8>> = Vec::new();
    for text in [
        "",
        "{}",
        "[]",
        "null",
        "{\"x\":1,\"x\":2}",
        "{\"\":{\"\":[{\"name\":\"\"},{\"name\":\"\"}]}}",
        r#"{"metadata":{"finalizers":[1,"1","1",null,"a,b]c","\u001b[31m","\"","="]}}"#,
        r#"{"l":[{"name":"a]","v":1},{"name":"b=c,d","v":{"\u202e\\\"]":[]}}],"m":[[1,[2]],[]]}"#,
        r#"{"metadata":{"ownerReferences":[{"uid":"x\n"},{"uid":1},{"name":"none"}],"labels":{"a.b/c":"d","[0]":"e"}}}"#,
        r#"{"apiVersion":"v1","kind":"Service","spec":{"ports":[{"port":1},{"port":1,"protocol":"TCP"},{"port":{}},7]}}"#,
        "a: &a [1, 2]\nb: *a\nc: {? [x]: y}\n",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {\"k\\0\": \"\\e[2J\"}\n",
        "metadata: []\napiVersion: {}\nkind: [1]\n",
    ] {
        all.push(text.into());
    }
    all.extend([b"\xff\xfe{".to_vec(), b"{\"x\":\"\xc3\x28\"}".to_vec(), vec![0; 100]]);
    all.extend([deep("[", "]", 60), deep("{\"a\":", "}", 60), deep("[", "]", 50_000)].map(String::into_bytes));
    all
}

#[test]
fn hostile_values_are_blamed_and_their_printed_paths_select_their_fields() {
    let (mut world, base) = started(&map(1, "0", "0"));
    let (mut main, mut last) = (base, Vec::new());
    for value in values() {
        let side = world.commit(&[main], &[(OTHER, Some(&value))], "");
        let ours = world.commit(&[main], &[(KEY, Some(&value))], "");
        main = world.commit(&[ours, side], &[(KEY, Some(&value)), (OTHER, Some(&value))], "");
        last = value;
        world.reference("refs/heads/side", side);
        world.merge(0, main, Policy::Later, &[KEY, OTHER], false);
        let options = Options::default();
        let blame = world.blame_with(0, KEY, When::Now, &options).expect("the key exists");
        assert!(!blame.fields.is_empty() && !blame.lines.is_empty(), "{blame:?}");
        for field in blame.fields.iter().filter(|field| !field.path.0.is_empty()) {
            let path = field.path.to_string();
            let selector = path.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
            let options = Options { field: Some(selector), ..Options::default() };
            let one = world.blame_with(0, KEY, When::Now, &options).unwrap_or_else(|error| panic!("{path}: {error}"));
            let found = one.fields.iter().find(|found| found.path == field.path);
            let found = found.unwrap_or_else(|| panic!("{path} selects {one:?}"));
            assert_eq!(found.value, field.value, "{path}");
            assert_eq!(one.origins[found.origin].commit.oid, blame.origins[field.origin].commit.oid, "{path}");
        }
    }
    assert_eq!(world.read(world.tip(0), KEY).expect("the key exists"), last, "the last value was merged");
}

#[test]
fn an_object_with_many_fields() {
    in_proportion(1000, many_fields, None);
}

#[test]
fn an_object_with_long_paths_of_which_one_field_is_selected() {
    in_proportion(7500, long_paths, Some("apiVersion"));
}

#[test]
fn merges_in_one_direction() {
    in_proportion(125, one_direction, None);
}

#[test]
fn commits_that_came_with_many_merges() {
    in_proportion(32, many_arrivals, None);
}
