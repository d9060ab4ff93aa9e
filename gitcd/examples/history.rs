//! Measures how long it takes to list the versions of one key among many, and to derive metadata from a history.
//!
//! ```text
//! cargo run --release -p gitcd --example history [-- commits [keys]]
//! ```

mod branch;

use std::path::Path;
use std::time::{Duration, Instant};

use gitcd::git::branch::{Action, Branch, Change, Record, State, Takeover};
use gitcd::history::History;

use crate::branch::{config, one};

/// Namespaces that hold the keys.
const NAMESPACES: usize = 200;
/// Commits per flush.
const FLUSH: usize = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let number = |at: usize, otherwise: usize| std::env::args().nth(at).map_or(Ok(otherwise), |count| count.parse());
    let (commits, keys) = (number(1, 100_000)?, number(2, 100_000)?);
    let folder = tempfile::tempdir()?;
    let started = Instant::now();
    write(folder.path(), commits, keys)?;
    println!("{commits} commits over {keys} keys, a flush for each {FLUSH}: written in {:.1?}", started.elapsed());
    print_versions(folder.path(), keys)?;

    let repository = git2::Repository::open(config(folder.path()).repository)?;
    repository.find_reference("refs/gitcd/metadata/main")?.delete()?;
    let started = Instant::now();
    let takeover = Takeover {
        state: State { revision: 1, incarnation: "bench".into(), ..State::default() },
        version: 1,
        depth: None,
        anew: false,
        check: &|_, _| Ok(()),
        progress: &mut |_| (),
    };
    let (branch, found) = Branch::adopt(config(folder.path()), takeover)?;
    println!("metadata of {} keys derived from {found} commits in {:.1?}", branch.keys(), started.elapsed());
    print_versions(folder.path(), keys)
}

/// Writes the first half of the keys in one commit, then one commit for each other key or update.
fn write(folder: &Path, commits: usize, keys: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut state = State { revision: 1, incarnation: "bench".into(), ..State::default() };
    let mut branch = Branch::create(config(folder), &state)?;
    let mut records = vec![None; keys];
    let mut put = |key: usize, revision: i64| {
        let known =
            records[key].get_or_insert(Record { create_revision: revision, mod_revision: 0, version: 0, lease: 0 });
        (known.mod_revision, known.version) = (revision, known.version + 1);
        change(key, *known)
    };
    state.revision += 1;
    branch.commit(&one(state.revision, (0..keys / 2).map(|key| put(key, state.revision)).collect()))?;
    branch.flush(&state)?;
    let mut next = keys / 2;
    for number in 1..commits {
        state.revision += 1;
        // Updates are spread over all existing keys.
        let key = if number % 2 == 0 && next < keys { next } else { number * 7919 % next };
        next += usize::from(key == next);
        branch.commit(&one(state.revision, vec![put(key, state.revision)]))?;
        if number % FLUSH == 0 || number + 1 == commits {
            branch.flush(&state)?;
        }
    }
    Ok(())
}

/// Lists the versions of a key written early, in the middle and late.
fn print_versions(folder: &Path, keys: usize) -> Result<(), Box<dyn std::error::Error>> {
    for (what, key) in [("an early key", 1), ("a key of the middle", keys * 3 / 4), ("a late key", keys * 99 / 100)] {
        let mut times = Vec::new();
        let mut versions = 0;
        for _ in 0..3 {
            let started = Instant::now();
            let history = History::open(config(folder), true)?;
            versions = history.versions(name(key).as_bytes(), 40, None)?.len();
            times.push(started.elapsed());
        }
        let least = times.into_iter().min().unwrap_or(Duration::ZERO);
        println!("  {what}: {versions} versions listed in {least:.0?}");
    }
    Ok(())
}

fn name(key: usize) -> String {
    format!("/registry/configmaps/namespace-{}/name-of-an-object-{key:06}", key % NAMESPACES)
}

fn change(key: usize, record: Record) -> Change {
    let value = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"name-of-an-object-{key:06}\"}},\
         \"data\":{{\"counter\":\"{}\",\"filler\":\"{}\"}}}}\n",
        record.mod_revision,
        "a value that takes room; ".repeat(16)
    );
    Change { key: name(key).into(), action: Action::Put { value: value.into(), record } }
}
