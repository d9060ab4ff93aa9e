//! The actors of revisions that are staged for the next pack. If the pack cannot be written, they are staged again, when their
//! claims are used up.

use std::collections::VecDeque;
use std::sync::Arc;

use gitcd_repo::actor::Actor;

use super::table::Outcome;

/// Staged revisions and their actors.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    /// In the order of revisions; those without an actor are not here.
    actors: VecDeque<(i64, Arc<Actor>)>,
    /// The last revision that was staged.
    last: i64,
}

impl Staged {
    /// Records a revision that follows all others.
    pub(crate) fn add(&mut self, revision: i64, outcome: &Outcome) {
        self.last = revision;
        self.actors.extend(outcome.actor().map(|actor| (revision, actor.clone())));
    }

    /// Completes a revision that was staged before without an actor.
    pub(crate) fn complete(&mut self, revision: i64, outcome: &Outcome) {
        if let (Some(actor), Err(at)) = (outcome.actor(), self.actors.binary_search_by_key(&revision, |(own, _)| *own))
        {
            self.actors.insert(at, (revision, actor.clone()));
        }
    }

    /// Returns whether a revision was staged before.
    pub(crate) fn has(&self, revision: i64) -> bool {
        revision <= self.last
    }

    /// Returns the actor of a revision that was staged before.
    pub(crate) fn actor(&self, revision: i64) -> Option<&Arc<Actor>> {
        if !self.has(revision) {
            return None;
        }
        let at = self.actors.binary_search_by_key(&revision, |(own, _)| *own).ok()?;
        Some(&self.actors[at].1)
    }

    /// Forgets the revisions up to `last`, which are in the repository.
    pub(crate) fn flushed(&mut self, last: i64) {
        let flushed = self.actors.partition_point(|(revision, _)| *revision <= last);
        self.actors.drain(..flushed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_are_known_until_their_pack_is_written() {
        let known = |user: &str| Outcome::Known(Arc::new(Actor { user: user.into(), ..Actor::default() }));
        let mut staged = Staged::default();
        for (revision, outcome) in [(4, known("jane")), (6, Outcome::Unknown), (7, known("bob"))] {
            staged.add(revision, &outcome);
        }
        let users =
            |staged: &Staged| [4, 6, 7, 8].map(|revision| staged.actor(revision).map(|actor| actor.user.clone()));
        assert_eq!(users(&staged), [Some("jane".into()), None, Some("bob".into()), None]);
        assert!(staged.has(6) && !staged.has(8));
        staged.complete(6, &known("ann"));
        staged.complete(7, &known("ann"));
        assert_eq!(users(&staged), [Some("jane".into()), Some("ann".into()), Some("bob".into()), None]);
        staged.flushed(6);
        assert_eq!(users(&staged), [None, None, Some("bob".into()), None]);
        assert!(staged.has(4), "it was counted");
    }
}
