//! The checker detects violations: each test breaks one guarantee in an otherwise valid history.

use std::collections::BTreeMap;

use super::history::{Action, Attempt, Change, Entry, LeaseFacts, Log, Op, Outcome, Read};
use super::model::{Facts, Model, Violation};

const LEASE: i64 = 7;

/// What the clients saw and what the store kept; valid as built.
///
/// | revision | |
/// |---|---|
/// | 2 | attempt 1 puts `/a` |
/// | 3 | attempt 2 creates the pair `/l`, `/r` |
/// | 4 | attempt 3, unknown, updates `/a` |
/// | 5 | attempt 4, unknown, deletes the pair |
/// | 6 | attempt 5 puts `/k` with a lease |
/// | 7 | the lease ends |
struct Story {
    log: Log,
    attempts: Vec<Attempt>,
    reads: Vec<Read>,
    leases: BTreeMap<i64, LeaseFacts>,
    end: i64,
}

impl Story {
    fn new() -> Self {
        let pair = || ["/l".to_owned(), "/r".to_owned()];
        let a = || "/a".to_owned();
        let leased = Action::Put { key: "/k".into(), lease: LEASE };
        let update = Action::Update { key: a(), expected: 2 };
        let attempts = vec![
            attempt(1, Action::Put { key: a(), lease: 0 }, Outcome::Changed(2)),
            attempt(2, Action::CreatePair { keys: pair() }, Outcome::Changed(3)),
            attempt(3, update.clone(), Outcome::Unknown),
            attempt(4, Action::DeletePair { keys: pair() }, Outcome::Unknown),
            attempt(5, leased, Outcome::Changed(6)),
            attempt(6, update, Outcome::Unchanged(5)),
            attempt(7, Action::Put { key: "/never".into(), lease: 0 }, Outcome::Unknown),
        ];
        let log = Log::from([
            (2, vec![put("/a", 1, 2, 2, 1)]),
            (3, vec![put("/l", 2, 3, 3, 1), put("/r", 2, 3, 3, 1)]),
            (4, vec![put("/a", 3, 2, 4, 2)]),
            (5, vec![delete("/l"), delete("/r")]),
            (6, vec![with_lease(put("/k", 5, 6, 6, 1))]),
            (7, vec![delete("/k")]),
        ]);
        let found = vec![("/a".to_owned(), entry(3, 2, 4, 2))];
        let facts = LeaseFacts { ttl: 2, granted: true, ..LeaseFacts::default() };
        Self {
            log,
            attempts,
            reads: vec![Read { revision: 5, prefix: "/".into(), found }],
            leases: BTreeMap::from([(LEASE, facts)]),
            end: 7,
        }
    }

    fn check(&self) -> Result<(), Violation> {
        let facts = Facts { attempts: &self.attempts, reads: &self.reads, leases: &self.leases };
        Model::empty().follow(&self.log, self.end, &facts)
    }

    fn events(&mut self, revision: i64) -> &mut Vec<Change> {
        self.log.get_mut(&revision).expect("the story has this revision")
    }
}

fn attempt(op: Op, action: Action, outcome: Outcome) -> Attempt {
    Attempt { op, action, seen_before: 1, outcome }
}

fn entry(op: Op, created: i64, changed: i64, version: i64) -> Entry {
    Entry { op, created, changed, version, lease: 0 }
}

fn put(key: &str, op: Op, created: i64, changed: i64, version: i64) -> Change {
    Change { key: key.into(), now: Some(entry(op, created, changed, version)) }
}

fn with_lease(mut change: Change) -> Change {
    if let Some(now) = &mut change.now {
        now.lease = LEASE;
    }
    change
}

fn delete(key: &str) -> Change {
    Change { key: key.into(), now: None }
}

macro_rules! notices {
    ($($name:ident: $break:expr => $violation:pat,)+) => {
        $(#[test]
        fn $name() {
            let mut story = Story::new();
            let apply: fn(&mut Story) = $break;
            apply(&mut story);
            let found = story.check().expect_err("the history is invalid");
            assert!(matches!(found, $violation), "{found:?}");
        })+
    };
}

#[test]
fn a_history_that_keeps_all_promises_passes() {
    assert_eq!(Story::new().check(), Ok(()));
}

#[test]
fn what_is_unknown_may_also_not_have_happened() {
    let mut story = Story::new();
    let never = Action::Delete { key: "/nothing".into() };
    story.attempts.push(attempt(8, never, Outcome::Unknown));
    assert_eq!(story.check(), Ok(()));
}

notices! {
    an_acknowledged_write_that_is_gone: |story| {
        story.log.clear();
        story.end = 1;
    } => Violation::Stale { .. } | Violation::Lost { .. },

    an_acknowledged_write_at_another_revision: |story| {
        story.attempts[0].outcome = Outcome::Changed(4);
    } => Violation::Unasked { .. } | Violation::Lost { .. },

    an_acknowledged_write_whose_revision_holds_another_one: |story| {
        *story.events(2) = vec![put("/a", 7, 2, 2, 1)];
    } => Violation::Lost { .. },

    half_of_an_acknowledged_transaction: |story| {
        story.events(3).pop();
    } => Violation::Lost { .. },

    half_of_an_unacknowledged_creation: |story| {
        story.attempts[1].outcome = Outcome::Unknown;
        story.events(3).pop();
    } => Violation::Half { .. },

    half_of_an_unacknowledged_deletion: |story| {
        story.events(5).pop();
    } => Violation::Half { .. },

    a_missing_revision: |story| {
        story.log.remove(&4);
    } => Violation::Gap { missing: 4 },

    a_revision_that_nobody_made: |story| {
        *story.events(4) = vec![delete("/a")];
    } => Violation::Unasked { .. },

    a_write_that_was_refused: |story| {
        story.attempts[2].outcome = Outcome::Refused;
    } => Violation::Unasked { .. },

    a_write_that_happens_twice: |story| {
        story.end = 8;
        story.log.insert(8, vec![put("/a", 3, 2, 8, 3)]);
    } => Violation::Twice { op: 3, first: 4, second: 8 },

    a_write_before_it_was_asked_for: |story| {
        story.attempts[2].seen_before = 4;
    } => Violation::OutOfTime { revision: 4, .. },

    a_write_whose_compare_does_not_hold: |story| {
        story.attempts[2].action = Action::Update { key: "/a".into(), expected: 99 };
    } => Violation::Condition { revision: 4, .. },

    a_failed_compare_that_holds: |story| {
        story.attempts[5].outcome = Outcome::Unchanged(3);
    } => Violation::Condition { revision: 3, .. },

    a_read_that_is_not_kept: |story| {
        story.reads[0].found[0].1.op = 1;
    } => Violation::Vanished { revision: 5, .. },

    a_read_behind_the_end: |story| {
        story.reads[0].revision = 9;
    } => Violation::Gap { missing: 9 },

    a_wrong_version: |story| {
        *story.events(4) = vec![put("/a", 3, 2, 4, 7)];
    } => Violation::Inconsistent { revision: 4, .. },

    a_wrong_lease: |story| {
        *story.events(6) = vec![put("/k", 5, 6, 6, 1)];
    } => Violation::Lost { .. },

    an_end_of_a_lease_that_nobody_ended: |story| {
        story.leases.insert(LEASE, LeaseFacts { ttl: 600, granted: true, ..LeaseFacts::default() });
    } => Violation::Unasked { revision: 7, .. },

    a_revoked_lease_whose_keys_stay: |story| {
        story.attempts.push(attempt(8, Action::Revoke { lease: LEASE }, Outcome::Done(6)));
    } => Violation::Condition { revision: 6, .. },
}
