//! Claims that wait for the committer, and how they are joined to revisions.
//!
//! A claim with a revision names the actor of that revision, if the revision wrote the object of the claim in the time of the
//! request. The time excludes a request that changed nothing: its response has the revision of an earlier write. A claim without a
//! revision names the actor of the only write of its object in the time of the request. If claims disagree, no actor is named.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gitcd_repo::actor::Actor;

use super::claim::{Claim, Write, is_key_of};
use super::staged::Staged;

/// How many claims are kept; the oldest are dropped.
const MAX_CLAIMS: usize = 1 << 14;
/// How many committed revisions are known, for claims that arrive after them.
const MAX_WRITTEN: usize = 1 << 12;
/// How long a claim is kept. Its write is in the store before it arrives, so it only has to outlast the committer's pauses.
const KEEP: Duration = Duration::from_secs(30);

/// A revision that is not committed yet.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'e> {
    pub(crate) revision: i64,
    /// When the write was accepted, in milliseconds since 1970.
    pub(crate) time_ms: i64,
    /// The keys, relative to the branch's prefix, and whether each was deleted.
    pub(crate) changes: Vec<(&'e [u8], bool)>,
}

/// Who made a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// This actor.
    Known(Arc<Actor>),
    /// Two users claim it.
    Ambiguous,
    /// No claim has arrived.
    Unknown,
}

impl Candidate<'_> {
    /// Returns the key that shows the resource of the revision: its first.
    pub(crate) fn resource_key(&self) -> &[u8] {
        self.changes.first().map_or(b"", |(key, _)| key)
    }
}

impl Outcome {
    pub(crate) fn actor(&self) -> Option<&Arc<Actor>> {
        match self {
            Self::Known(actor) => Some(actor),
            Self::Ambiguous | Self::Unknown => None,
        }
    }

    fn add(&mut self, actor: &Arc<Actor>) {
        match self {
            Self::Unknown => *self = Self::Known(actor.clone()),
            // The same user by two programs is still that user.
            Self::Known(known) if (&known.user, &known.impersonator) != (&actor.user, &actor.impersonator) => {
                *self = Self::Ambiguous;
            }
            Self::Known(_) | Self::Ambiguous => {}
        }
    }
}

/// Claims by the revision or the object that they name.
#[derive(Debug, Default)]
pub(crate) struct Table {
    by_revision: HashMap<i64, Vec<Arc<Claim>>>,
    /// Claims of a write in the time of the request, by the object's name.
    by_name: HashMap<String, Vec<Arc<Claim>>>,
    /// Those of all objects of a resource.
    collections: Vec<Arc<Claim>>,
    /// All claims in the order of arrival.
    order: VecDeque<(Instant, Arc<Claim>)>,
    /// The last committed revisions, each with its time and keys.
    written: VecDeque<(i64, i64, Vec<Vec<u8>>)>,
    tolerance_ms: i64,
}

impl Table {
    pub(crate) fn new(tolerance: Duration) -> Self {
        Self { tolerance_ms: i64::try_from(tolerance.as_millis()).unwrap_or(i64::MAX / 4), ..Self::default() }
    }

    /// Adds a claim. Returns how many old ones were dropped because of the limit.
    pub(crate) fn add(&mut self, claim: Claim, now: Instant) -> u64 {
        while self.order.front().is_some_and(|(since, _)| now.saturating_duration_since(*since) > KEEP) {
            self.drop_oldest();
        }
        let is_full = self.order.len() >= MAX_CLAIMS;
        if is_full {
            self.drop_oldest();
        }
        let claim = Arc::new(claim);
        if let Some(revision) = claim.revision() {
            self.by_revision.entry(revision).or_default().push(claim.clone());
        }
        if !matches!(claim.write, Write::At(_)) {
            let same = match claim.object.name.as_str() {
                "" => &mut self.collections,
                name => self.by_name.entry(name.to_owned()).or_default(),
            };
            same.push(claim.clone());
        }
        self.order.push_back((now, claim));
        u64::from(is_full)
    }

    fn drop_oldest(&mut self) {
        let Some((_, claim)) = self.order.pop_front() else { return };
        if let Some(revision) = claim.revision() {
            remove(&mut self.by_revision, &revision, &claim);
        }
        remove(&mut self.by_name, &claim.object.name, &claim);
        self.collections.retain(|other| !Arc::ptr_eq(other, &claim));
    }

    /// Drops the claims of these revisions, which are staged. A claim names one write of an object, so those without a revision
    /// are dropped, too, once they have named one.
    pub(crate) fn staged(&mut self, candidates: &[Candidate<'_>], outcomes: &[Outcome]) {
        let Some(last) = candidates.last() else { return };
        let tolerance_ms = self.tolerance_ms;
        self.by_revision.retain(|revision, _| *revision > last.revision);
        for (candidate, outcome) in candidates.iter().zip(outcomes) {
            for (key, is_deleted) in &candidate.changes {
                let Some(claims) = name(key).and_then(|name| self.by_name.get_mut(name)) else { continue };
                claims.retain(|claim| {
                    let has_named = outcome.actor().is_some_and(|actor| Arc::ptr_eq(actor, &claim.actor));
                    let is_kind = *is_deleted || claim.write == Write::Any;
                    let is_it = claim.revision() == Some(candidate.revision) || has_named && is_kind;
                    !is_it || !claim.covers(candidate.time_ms, tolerance_ms) || !is_key_of(key, &claim.object)
                });
            }
            let keys = candidate.changes.iter().map(|(key, _)| key.to_vec()).collect();
            self.written.push_back((candidate.revision, candidate.time_ms, keys));
        }
        while self.written.len() > MAX_WRITTEN {
            self.written.pop_front();
        }
        self.by_name.retain(|_, claims| !claims.is_empty());
    }

    /// Returns whether the revision of a claim wrote its object in the time of the request. Then the claim is for no other write.
    fn has_written(&self, claim: &Claim, candidates: &[Candidate<'_>]) -> bool {
        let Some(revision) = claim.revision() else { return false };
        let is_it = |own: i64, time_ms: i64| own == revision && claim.covers(time_ms, self.tolerance_ms);
        let mut pending = candidates.iter().filter(|candidate| is_it(candidate.revision, candidate.time_ms));
        let mut committed = self.written.iter().filter(|(own, time_ms, _)| is_it(*own, *time_ms));
        pending.any(|candidate| candidate.changes.iter().any(|(key, _)| is_key_of(key, &claim.object)))
            || committed.any(|(_, _, keys)| keys.iter().any(|key| is_key_of(key, &claim.object)))
    }

    /// Returns who made each of these revisions: all that are durable and not committed yet, in order, so that the only write in
    /// the time of a request is known to be the only one.
    ///
    /// Takes time for each revision, and for each claim without a revision the number of its object's writes.
    pub(crate) fn resolve(&self, candidates: &[Candidate<'_>], staged: &Staged) -> Vec<Outcome> {
        let known =
            |candidate: &Candidate<'_>| staged.actor(candidate.revision).map(|actor| Outcome::Known(actor.clone()));
        let outcome = |candidate: &Candidate<'_>| known(candidate).unwrap_or_else(|| self.at_revision(candidate));
        let mut outcomes: Vec<_> = candidates.iter().map(outcome).collect();
        self.in_time(candidates, &mut outcomes);
        outcomes
    }

    fn at_revision(&self, candidate: &Candidate<'_>) -> Outcome {
        let mut outcome = Outcome::Unknown;
        for claim in self.by_revision.get(&candidate.revision).into_iter().flatten() {
            let wrote = || candidate.changes.iter().any(|(key, _)| is_key_of(key, &claim.object));
            if claim.covers(candidate.time_ms, self.tolerance_ms) && wrote() {
                outcome.add(&claim.actor);
            }
        }
        outcome
    }

    fn in_time(&self, candidates: &[Candidate<'_>], outcomes: &mut [Outcome]) {
        if self.by_name.is_empty() && self.collections.is_empty() {
            return;
        }
        // The writes that each claim may have made.
        let mut writes: HashMap<*const Claim, (&Arc<Claim>, Vec<usize>)> = HashMap::new();
        for (at, candidate) in candidates.iter().enumerate() {
            if outcomes[at] != Outcome::Unknown {
                continue;
            }
            for (key, is_deleted) in &candidate.changes {
                let named = name(key).and_then(|name| self.by_name.get(name)).into_iter().flatten();
                for claim in named.chain(&self.collections) {
                    let is_kind = *is_deleted || claim.write == Write::Any;
                    if is_kind && claim.covers(candidate.time_ms, self.tolerance_ms) && is_key_of(key, &claim.object) {
                        writes.entry(Arc::as_ptr(claim)).or_insert_with(|| (claim, Vec::new())).1.push(at);
                    }
                }
            }
        }
        // An update that removed the last finalizer has the revision of an earlier write; another one wrote its own revision.
        let is_open = |claim: &Claim| !self.has_written(claim, candidates);
        let mut found: Vec<_> = writes.into_values().filter(|(claim, _)| is_open(claim)).collect();
        // A deletion by name comes before one of a collection that includes the name.
        found.sort_by_key(|(claim, writes)| (claim.object.name.is_empty(), writes[0]));
        let mut named = outcomes.to_vec();
        for (claim, writes) in found {
            let is_collection = claim.object.name.is_empty();
            if !is_collection && writes.len() > 1 {
                continue;
            }
            for at in writes {
                // A deletion by name was named before.
                if !is_collection || named[at] == Outcome::Unknown {
                    named[at].add(&claim.actor);
                }
            }
        }
        outcomes.clone_from_slice(&named);
    }
}

/// Returns the last component of a key.
fn name(key: &[u8]) -> Option<&str> {
    key.rsplit(|byte| *byte == b'/').next().and_then(|name| std::str::from_utf8(name).ok())
}

fn remove<K: std::hash::Hash + Eq>(map: &mut HashMap<K, Vec<Arc<Claim>>>, key: &K, claim: &Arc<Claim>) {
    if let Some(claims) = map.get_mut(key) {
        claims.retain(|other| !Arc::ptr_eq(other, claim));
        if claims.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::event::ObjectRef;
    use super::*;

    const PRICES: &[u8] = b"configmaps/shop/prices";

    fn claim(user: &str, name: &str, write: Write, from_ms: i64, to_ms: i64) -> Claim {
        let actor = Arc::new(Actor { user: user.into(), ..Actor::default() });
        let object = ObjectRef {
            resource: "configmaps".into(),
            namespace: "shop".into(),
            name: name.into(),
            ..ObjectRef::default()
        };
        Claim { actor, object, from_ms, to_ms, write }
    }

    fn table(claims: impl IntoIterator<Item = Claim>) -> Table {
        let mut table = Table::new(Duration::ZERO);
        for claim in claims {
            table.add(claim, Instant::now());
        }
        table
    }

    fn put(revision: i64, time_ms: i64) -> Candidate<'static> {
        Candidate { revision, time_ms, changes: vec![(PRICES, false)] }
    }

    fn delete(revision: i64, time_ms: i64) -> Candidate<'static> {
        Candidate { revision, time_ms, changes: vec![(PRICES, true)] }
    }

    fn users(table: &Table, candidates: &[Candidate<'_>]) -> Vec<String> {
        let name = |outcome: &Outcome| match outcome {
            Outcome::Known(actor) => actor.user.clone(),
            Outcome::Ambiguous => "?".to_owned(),
            Outcome::Unknown => "-".to_owned(),
        };
        table.resolve(candidates, &Staged::default()).iter().map(name).collect()
    }

    /// An update wrote 6, which is committed. The deletion in the time of its request is another user's, whose event comes later.
    #[test]
    fn a_claim_that_named_a_write_names_no_later_one() {
        let update = || claim("x", "prices", Write::AtOrDeletion(6), 10, 20);
        let mut table = table([update()]);
        let first = [put(6, 12)];
        let outcomes = table.resolve(&first, &Staged::default());
        assert_eq!(users(&table, &first), ["x"]);
        table.staged(&first, &outcomes);
        assert_eq!(users(&table, &[delete(7, 15)]), ["-"]);
        // The same event once more.
        table.add(update(), Instant::now());
        assert_eq!(users(&table, &[delete(7, 15)]), ["-"]);
        table.add(claim("y", "prices", Write::Deletion, 14, 16), Instant::now());
        let second = [delete(7, 15)];
        let outcomes = table.resolve(&second, &Staged::default());
        assert_eq!(users(&table, &second), ["y"]);
        table.staged(&second, &outcomes);
        assert_eq!(users(&table, &[put(8, 15), delete(9, 16)]), ["-", "-"]);
    }

    /// The response to an update that removed the last finalizer has the revision of an earlier write.
    #[test]
    fn an_update_that_deleted_the_object_names_the_deletion() {
        let mut table = table([]);
        let before = [put(6, 5)];
        let outcomes = table.resolve(&before, &Staged::default());
        table.staged(&before, &outcomes);
        table.add(claim("x", "prices", Write::AtOrDeletion(6), 10, 20), Instant::now());
        assert_eq!(users(&table, &[delete(7, 15)]), ["x"]);
    }

    #[test]
    fn a_response_names_the_actor_of_its_revision_only() {
        let table = table([claim("jane", "prices", Write::At(7), 10, 20)]);
        assert_eq!(users(&table, &[put(6, 15), put(7, 15), put(8, 15)]), ["-", "jane", "-"]);
    }

    #[test]
    fn a_request_that_changed_nothing_does_not_take_the_revision_of_another() {
        // Its response has the revision of the last write, which was before the request.
        let table = table([claim("noop", "prices", Write::At(7), 16, 30)]);
        assert_eq!(users(&table, &[put(7, 15)]), ["-"]);
    }

    #[test]
    fn a_revision_of_another_object_is_not_joined() {
        let table = table([claim("jane", "others", Write::At(7), 10, 20)]);
        assert_eq!(users(&table, &[put(7, 15)]), ["-"]);
    }

    #[test]
    fn two_users_that_claim_one_revision_leave_it_without_a_name() {
        let at = Write::At(7);
        let table = table([claim("jane", "prices", at, 10, 20), claim("bob", "prices", at, 11, 21)]);
        assert_eq!(users(&table, &[put(7, 15)]), ["?"]);
    }

    #[test]
    fn a_deletion_is_found_by_its_object_and_time() {
        let table = table([claim("jane", "prices", Write::Deletion, 10, 20)]);
        assert_eq!(users(&table, &[put(6, 12), delete(7, 15), put(8, 18)]), ["-", "jane", "-"]);
        assert_eq!(users(&table, &[delete(7, 9)]), ["-"], "before the request");
        assert_eq!(users(&table, &[delete(7, 21)]), ["-"], "after the response");
        assert_eq!(users(&table, &[delete(7, 12), put(8, 13), delete(9, 15)]), ["-", "-", "-"], "one of two");
    }

    #[test]
    fn a_collection_names_the_actor_of_all_its_deletions_but_those_of_others() {
        let table = table([claim("jane", "", Write::Deletion, 10, 20), claim("bob", "tea", Write::Deletion, 14, 16)]);
        let key = |key: &'static [u8]| vec![(key, true)];
        let of = |revision, changes| Candidate { revision, time_ms: 15, changes };
        let deletions = [
            of(1, key(PRICES)),
            of(2, key(b"configmaps/shop/tea")),
            of(3, key(b"configmaps/other/prices")),
            of(4, key(b"secrets/shop/prices")),
        ];
        assert_eq!(users(&table, &deletions), ["jane", "bob", "-", "-"]);
    }

    #[test]
    fn the_update_that_removes_the_last_finalizer_deletes_the_object() {
        // Its response has the revision of the update before it.
        let table = table([claim("jane", "prices", Write::AtOrDeletion(6), 10, 20)]);
        assert_eq!(users(&table, &[delete(7, 15)]), ["jane"]);
        // An update of a terminating object is only an update.
        assert_eq!(users(&table, &[put(6, 12), delete(7, 15)]), ["jane", "-"]);
    }

    #[test]
    fn a_write_with_a_revision_is_not_also_taken_by_a_claim_without_one() {
        let table = table([claim("jane", "prices", Write::At(6), 10, 20), claim("bob", "prices", Write::Any, 11, 20)]);
        assert_eq!(users(&table, &[put(6, 12), put(7, 15)]), ["jane", "bob"]);
    }

    #[test]
    fn clocks_may_differ_by_the_tolerance() {
        let mut table = Table::new(Duration::from_millis(50));
        table.add(claim("jane", "prices", Write::At(7), 1000, 1010), Instant::now());
        assert_eq!(users(&table, &[put(7, 950)]), ["jane"]);
        assert_eq!(users(&table, &[put(7, 949)]), ["-"]);
    }

    #[test]
    fn the_oldest_claims_are_dropped_at_the_limit_and_after_their_time() {
        let (mut table, now) = (Table::new(Duration::ZERO), Instant::now());
        let dropped: u64 = (0..MAX_CLAIMS as i64 + 5)
            .map(|at| table.add(claim("jane", "prices", Write::AtOrDeletion(at), 10, 20), now))
            .sum();
        assert_eq!((dropped, table.order.len()), (5, MAX_CLAIMS));
        assert_eq!(users(&table, &[put(4, 15), put(5, 15)]), ["-", "jane"]);
        table.add(claim("bob", "tea", Write::Deletion, 10, 20), now + KEEP + Duration::from_millis(1));
        let left = (table.order.len(), table.by_revision.len(), table.by_name.len(), table.collections.len());
        assert_eq!(left, (1, 0, 1, 0));
    }

    proptest! {
        /// Requests of five users, whose events come in any order, some twice, some not at all.
        #[test]
        fn no_revision_gets_the_name_of_another_user(
            writes in prop::collection::vec((0..5_usize, 0..3_i64, 0..4_i64, 0..5_usize), 1..60),
            order in any::<u64>(),
        ) {
            let mut time = 1000;
            let (mut candidates, mut claims, mut made) = (Vec::new(), Vec::new(), Vec::new());
            for (at, (user, pause, duration, fate)) in writes.iter().enumerate() {
                time += pause;
                let revision = at as i64 + 2;
                candidates.push(put(revision, time));
                made.push(format!("user{user}"));
                // A request that changed nothing, later than the write.
                let noop = claim("noop", "prices", Write::At(revision), time + 1, time + 9);
                claims.push((order.rotate_left(at as u32 + 7), noop));
                for copy in 0..fate.saturating_sub(2).max(usize::from(*fate > 0)) {
                    let event = claim(&made[at], "prices", Write::At(revision), time - duration, time + duration);
                    claims.push((order.rotate_right((at * 3 + copy) as u32) ^ at as u64, event));
                }
            }
            claims.sort_by_key(|(key, _)| *key);
            let table = table(claims.into_iter().map(|(_, claim)| claim));
            for (at, user) in users(&table, &candidates).into_iter().enumerate() {
                let expected = if writes[at].3 > 0 { &made[at] } else { "-" };
                prop_assert_eq!(user, expected);
            }
        }
    }
}
