//! Measures how long it takes to list the versions of one key among many, and to blame its fields.
//!
//! ```text
//! cargo run --release -p gitcd-history --example blame [-- commits [keys [commits-of-a-flush [commits-between-merges [one-way]]]]]
//! ```
//!
//! With `one-way`, the other branch never merges the first one.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

use gitcd_core::keyspace::KeySpace;
use gitcd_history::History;
use gitcd_history::blame::Options;
use gitcd_history::when::When;
use gitcd_repo::branch::{Action, Branch, Change, Config, Merging, Record, Revisions, State};

type Done = Result<(), Box<dyn std::error::Error>>;

fn config(folder: &Path, name: &str) -> Config {
    Config { keys: KeySpace::new("/registry", [""; 0]), ..Config::named(folder.join("store.git"), name) }
}

fn main() -> Done {
    let number = |at: usize, otherwise: usize| std::env::args().nth(at).map_or(Ok(otherwise), |count| count.parse());
    let (commits, keys, flush, merge) = (number(1, 100_000)?, number(2, 100_000)?, number(3, 1000)?, number(4, 0)?);
    let folder = tempfile::tempdir()?;
    let started = Instant::now();
    let mut writer = Writer::new(folder.path(), keys)?;
    writer.is_one_way = std::env::args().nth(5).as_deref() == Some("one-way");
    writer.write(commits, flush, merge)?;
    println!("{commits} commits over {keys} keys, a flush for each {flush}: written in {:.1?}", started.elapsed());
    // As maintenance does; otherwise every read searches in hundreds of packs.
    std::process::Command::new("git")
        .arg("-C")
        .arg(folder.path().join("store.git"))
        .args(["repack", "-adq"])
        .status()?;
    for (what, key) in [("an early key", 1), ("a key of the middle", keys * 3 / 4), ("a late key", keys * 99 / 100)] {
        let (mut log, mut blame) = (Vec::new(), Vec::new());
        let mut versions = 0;
        for _ in 0..3 {
            let started = Instant::now();
            let history = History::open(config(folder.path(), "one"), true)?;
            versions = history.versions(name(key).as_bytes(), 40, None)?.len();
            log.push(started.elapsed());
            let started = Instant::now();
            let history = History::open(config(folder.path(), "one"), true)?;
            history.blame(&history.at(When::Now)?, name(key).as_bytes(), &Options::default())?;
            blame.push(started.elapsed());
        }
        let least = |times: &[Duration]| times.iter().min().copied().unwrap_or_default();
        println!("  {what}: {versions} versions listed in {:.0?}, blamed in {:.0?}", least(&log), least(&blame));
    }
    Ok(())
}

/// Two branches; the second one is written only if they merge each other.
struct Writer {
    branches: [Branch; 2],
    states: [State; 2],
    records: [HashMap<usize, Record>; 2],
    /// Keys that a branch wrote since its last merge.
    written: [HashMap<usize, Change>; 2],
    keys: usize,
    clock: u64,
    /// Whether the second branch never merges the first one after the start.
    is_one_way: bool,
}

impl Writer {
    fn new(folder: &Path, keys: usize) -> Result<Self, Box<dyn std::error::Error>> {
        let state = State { revision: 1, incarnation: "bench".into(), ..State::default() };
        let branch = |name: &str| Branch::create(config(folder, name), &state);
        let branches = [branch("one")?, branch("other")?];
        let states = [state.clone(), state];
        Ok(Self {
            branches,
            states,
            records: Default::default(),
            written: Default::default(),
            keys,
            clock: 1_700_000_000,
            is_one_way: false,
        })
    }

    fn change(&mut self, branch: usize, key: usize) -> Change {
        self.states[branch].revision += 1;
        let revision = self.states[branch].revision;
        let new = Record { create_revision: revision, mod_revision: 0, version: 0, lease: 0 };
        let record = self.records[branch].entry(key).or_insert(new);
        (record.mod_revision, record.version) = (revision, record.version + 1);
        let change = put(key, *record);
        self.written[branch].insert(key, change.clone());
        change
    }

    fn revisions(&mut self, branch: usize, changes: Vec<Change>) -> Revisions {
        self.clock += 1;
        let last = self.states[branch].revision;
        let first = last - changes.len().max(1) as i64 + 1;
        let clients = vec!["kube-apiserver/v1.36.3".into()];
        Revisions { first, last, time: UNIX_EPOCH + Duration::from_secs(self.clock), clients, changes }
    }

    /// Writes the first half of the keys in one commit, then one commit for each other key or update.
    fn write(&mut self, commits: usize, flush: usize, merge: usize) -> Done {
        let first = (0..self.keys / 2).map(|key| self.change(0, key)).collect();
        let first = self.revisions(0, first);
        self.branches[0].commit(&first)?;
        if merge > 0 {
            self.merge(1)?;
        }
        let mut next = self.keys / 2;
        for number in 1..commits {
            let branch = if merge > 0 { number % 2 } else { 0 };
            let key = if number % 2 == 0 && next < self.keys { next } else { number * 7919 % next };
            next += usize::from(key == next);
            let change = self.change(branch, key);
            let revisions = self.revisions(branch, vec![change]);
            self.branches[branch].commit(&revisions)?;
            if merge > 0 && number % merge == 0 {
                self.merge(0)?;
                if !self.is_one_way {
                    self.merge(1)?;
                }
            } else if number % flush == 0 || number + 1 == commits {
                self.flush(0)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self, branch: usize) -> Done {
        self.branches[branch].flush(&self.states[branch])?;
        Ok(())
    }

    /// Takes what the other branch wrote since the last merge, unless this branch wrote it as well.
    fn merge(&mut self, branch: usize) -> Done {
        self.flush(0)?;
        self.flush(1)?;
        let theirs = std::mem::take(&mut self.written[1 - branch]);
        let mut changes = Vec::new();
        for (key, change) in theirs {
            if self.written[branch].contains_key(&key) {
                continue;
            }
            self.states[branch].revision += 1;
            let revision = self.states[branch].revision;
            let new = Record { create_revision: revision, mod_revision: 0, version: 0, lease: 0 };
            let record = self.records[branch].entry(key).or_insert(new);
            (record.mod_revision, record.version) = (revision, record.version + 1);
            if let Action::Put { value, .. } = change.action {
                changes.push(Change { key: change.key, action: Action::Put { value, record: *record } });
            }
        }
        let revisions = self.revisions(branch, changes);
        let theirs = self.branches[1 - branch].head().data;
        let merging = Merging { revisions, theirs, blobs: HashMap::new(), fast_forward: true, notes: String::new() };
        self.branches[branch].merge(&merging)?;
        self.flush(branch)
    }
}

/// Namespaces that hold the keys.
const NAMESPACES: usize = 200;

fn name(key: usize) -> String {
    format!("/registry/configmaps/namespace-{}/name-of-an-object-{key:06}", key % NAMESPACES)
}

fn put(key: usize, record: Record) -> Change {
    let value = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"name-of-an-object-{key:06}\"}},\
         \"data\":{{\"counter\":\"{}\",\"filler\":\"{}\"}}}}\n",
        record.mod_revision,
        "a value that takes room; ".repeat(16)
    );
    Change { key: name(key).into(), action: Action::Put { value: value.into(), record } }
}
