//! Random graphs of edits and merges: every field is blamed on a commit that the rules admit.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use git2::Oid;
use gitcd_history::blame::{Blame, Options};
use gitcd_history::when::When;
use gitcd_merge::Policy;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::fields::{self, KEYS};
use crate::model::Model;
use crate::world::World;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

#[test]
fn every_field_is_blamed_on_a_commit_that_the_rules_admit() {
    let (cases, seed) = (number("GITCD_BLAME_CASES", 200), number("GITCD_BLAME_SEED", 1));
    let mut totals = Totals::default();
    for seed in seed..seed + cases {
        Case::new(seed).run(&mut totals);
    }
    println!("{cases} graphs from seed {seed}: {totals:?}");
    let Totals { fields, contested, merged, .. } = totals;
    assert!(cases < 100 || fields > cases * 20 && contested > cases / 10 && merged > cases / 4, "{totals:?}");
}

/// What the cases had, so that a test of nothing fails.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    fields: u64,
    /// Fields with several admitted writers.
    contested: u64,
    /// Fields that a merge made.
    merged: u64,
    moments: u64,
}

struct Case {
    seed: u64,
    random: StdRng,
    world: World,
    model: Model,
    branches: usize,
    created: usize,
    /// What happened, for the report of a failure.
    log: String,
    /// Revisions of branches that have commits.
    revisions: Vec<(usize, i64)>,
    /// What each branch did, in order.
    arrivals: Vec<Vec<Arrived>>,
}

/// A state of a branch, after a commit or a merge.
struct Arrived {
    tip: Oid,
    /// Whether the branch made the commit.
    is_own: bool,
    /// The revisions that it gave to keys.
    revisions: BTreeMap<&'static str, i64>,
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let branches = random.random_range(2..=5);
        let (world, model) = (World::new(branches), Model::default());
        Self {
            seed,
            random,
            world,
            model,
            branches,
            created: 0,
            log: String::new(),
            revisions: Vec::new(),
            arrivals: (0..branches).map(|_| Vec::new()).collect(),
        }
    }

    fn run(mut self, totals: &mut Totals) {
        // All branches start with the objects of the first one.
        let first = self.world.tip(0);
        self.model.add(first, Vec::new(), &BTreeMap::new());
        for key in KEYS {
            self.edit(0, key);
        }
        self.world.flush(0);
        for branch in 1..self.branches {
            self.know(branch, self.world.tip(branch), Vec::new());
            self.merge(branch, self.world.tip(0), "branch 0");
        }
        for _ in 0..self.random.random_range(5..40) {
            self.step();
        }
        (0..self.branches).for_each(|branch| self.world.flush(branch));
        for branch in 0..self.branches {
            let tip = self.world.tip(branch);
            for key in KEYS {
                if self.world.value(branch, key).is_some() {
                    let blame = self.world.blame(branch, key);
                    self.check(&blame, (branch, tip), key, totals);
                }
            }
        }
        self.check_moment(totals);
    }

    fn step(&mut self) {
        let branch = self.random.random_range(0..self.branches);
        let key = *KEYS.choose(&mut self.random).expect("there are keys");
        match self.random.random_range(0..12) {
            0..=5 => self.edit(branch, key),
            6 => self.world.flush(branch),
            7 => self.person(branch, key),
            _ => {
                let other = (branch + self.random.random_range(1..self.branches)) % self.branches;
                self.world.flush(other);
                self.merge(branch, self.world.tip(other), &format!("branch {other}"));
            }
        }
    }

    /// Adds a commit to the model, with the values that the branch has.
    fn know(&mut self, branch: usize, commit: Oid, parents: Vec<Oid>) {
        if self.model.has(commit) {
            return;
        }
        let values = KEYS.iter().filter_map(|key| {
            let value = self.world.value(branch, key)?;
            Some(((*key).to_owned(), value.to_vec()))
        });
        let values = values.collect();
        self.model.add(commit, parents, &values);
    }

    fn edit(&mut self, branch: usize, key: &'static str) {
        let parent = self.world.tip(branch);
        let value = self.changed(branch, key);
        let commit = self.world.put(branch, &[(key, value.as_deref())]);
        if commit == parent {
            return;
        }
        let text = value.as_ref().map_or_else(|| "deleted".into(), |value| String::from_utf8_lossy(value).into_owned());
        let _ = writeln!(self.log, "{commit:.10} branch {branch}: {key}: {}", text.trim_end());
        self.know(branch, commit, vec![parent]);
        let revision = self.world.revision(branch);
        self.revisions.push((branch, revision));
        self.arrivals[branch].push(Arrived { tip: commit, is_own: true, revisions: [(key, revision)].into() });
    }

    /// Returns another value of a key: an edit, a deletion, a new object, or sometimes the same value.
    fn changed(&mut self, branch: usize, key: &str) -> Option<Vec<u8>> {
        let now = self.world.value(branch, key).map(<[u8]>::to_vec);
        let Some(now) = now else {
            self.created += 1;
            return Some(fields::created(&mut self.random, key, self.created));
        };
        match self.random.random_range(0..16) {
            0 => None,
            1 => Some(now),
            _ => Some(fields::edited(&mut self.random, key, &now)),
        }
    }

    /// A person's commit on a branch, which merges it.
    fn person(&mut self, branch: usize, key: &'static str) {
        let Some(now) = self.world.value(branch, key).map(<[u8]>::to_vec) else { return };
        let value = fields::edited(&mut self.random, key, &now);
        let parent = self.world.tip(branch);
        let commit = self.world.person(branch, ["Ann", "Ann"], (key, Some(&value)));
        let _ =
            writeln!(self.log, "{commit:.10} Ann on {branch}: {key}: {}", String::from_utf8_lossy(&value).trim_end());
        if !self.model.has(commit) {
            let read = |key: &&str| Some(((*key).to_owned(), self.world.read(commit, key)?));
            let values = KEYS.iter().filter_map(read).collect();
            self.model.add(commit, vec![parent], &values);
        }
        if self.random.random_bool(0.5) {
            let key = *KEYS.choose(&mut self.random).expect("there are keys");
            self.edit(branch, key);
        }
        self.merge(branch, commit, "Ann's commit");
    }

    fn merge(&mut self, branch: usize, theirs: Oid, what: &str) {
        let policy =
            *[Policy::Later, Policy::Later, Policy::Ours, Policy::Theirs].choose(&mut self.random).expect("some");
        let fast_forward = self.random.random_bool(0.5);
        let before: Vec<_> = KEYS.iter().map(|key| self.world.record(branch, key)).collect();
        let commit = self.world.merge(branch, theirs, policy, &KEYS, fast_forward);
        let parents = self.world.parents(commit);
        let after = KEYS.iter().map(|key| (*key, self.world.record(branch, key)));
        let changed = after.zip(before).filter(|((_, after), before)| after != before);
        let revisions = changed.filter_map(|((key, after), _)| Some((key, after?.mod_revision))).collect();
        self.arrivals[branch].push(Arrived { tip: commit, is_own: commit != theirs, revisions });
        let _ =
            writeln!(self.log, "{commit:.10} branch {branch} merges {what}, {theirs:.10} ({policy:?}): {parents:.10?}");
        self.know(branch, commit, parents);
    }

    fn check(&self, blame: &Blame, (branch, tip): (usize, Oid), key: &str, totals: &mut Totals) {
        let admitted = self.model.writers(tip, key);
        let report = |problem: String| {
            panic!("seed {}, {key} of branch {branch} at {tip:.10}: {problem}\n{}", self.seed, self.log)
        };
        let mut paths = Vec::new();
        for field in &blame.fields {
            let path = field.path.to_string();
            let commit = blame.origins[field.origin].commit.oid;
            let Some(writers) = admitted.get(&path) else { return report(format!("{path} is no field")) };
            if !writers.contains(&commit) {
                report(format!("{path} is blamed on {commit:.10}, and not on one of {writers:.10?}"));
            }
            let origin = &blame.origins[field.origin];
            let found = (origin.revisions.map(|own| [own.first, own.last]), origin.branch.clone(), origin.is_own);
            let expected = self.expected(branch, key, origin.commit.oid);
            if found != expected {
                report(format!("{path} of {commit:.10} is of {found:?}, and not of {expected:?}"));
            }
            for also in &field.also {
                assert!(writers.contains(also), "seed {}: {path} also of {also}", self.seed);
            }
            totals.fields += 1;
            totals.contested += u64::from(writers.len() > 1);
            totals.merged += u64::from(blame.origins[field.origin].commit.parents.len() > 1);
            paths.push(path);
        }
        paths.sort();
        if !paths.iter().eq(admitted.keys()) {
            report(format!("fields {paths:?}, and not {:?}", admitted.keys()));
        }
    }

    /// Returns the revisions and the branch of a commit, and whether it is this branch's own.
    fn expected(&self, branch: usize, key: &str, commit: Oid) -> (Option<[i64; 2]>, Option<String>, bool) {
        let has = |tip: Oid| self.model.has_behind(tip, commit);
        let arrived = self.arrivals[branch].iter().find(|arrived| has(arrived.tip));
        let arrived = arrived.expect("the commit is in the history of the branch");
        let is_own = arrived.is_own && arrived.tip == commit;
        let revision = arrived.revisions.get(key).map(|revision| [*revision, *revision]);
        if is_own {
            return (revision, Some(format!("b{branch}")), true);
        }
        let others = (0..self.branches).filter(|other| *other != branch && has(self.world.tip(*other)));
        let others: Vec<_> = others.collect();
        let name = match others[..] {
            [only] => Some(format!("b{only}")),
            _ => self.world.store_of(commit),
        };
        (revision, name, false)
    }

    /// Checks the state at an earlier revision.
    fn check_moment(&mut self, totals: &mut Totals) {
        let Some((branch, revision)) = self.revisions.choose(&mut self.random).copied() else { return };
        // Merges that changed nothing have no revision of their own: the moment is after them.
        let moment = self.world.history(branch).at(When::Revision(revision)).expect("the revision is in the history");
        let commit = moment.commit.oid;
        for key in KEYS {
            if self.world.read(commit, key).is_some() {
                let blame = self.world.blame_with(branch, key, When::Revision(revision), &Options::default());
                let blame = blame.unwrap_or_else(|error| panic!("seed {}: {key} at {revision}: {error}", self.seed));
                self.check(&blame, (branch, commit), key, totals);
                totals.moments += 1;
            }
        }
    }
}
