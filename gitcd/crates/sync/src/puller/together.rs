//! Remotes that are branches of one repository: what one of them brings there the others need not.

use std::collections::HashMap;

use gitcd_engine::committer::Head;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::super::remote::Place;

/// What is under way with each repository.
#[derive(Debug, Default)]
pub(super) struct Together(Mutex<HashMap<Place, watch::Sender<Traffic>>>);

/// Exchanges with one repository.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    under_way: usize,
    /// What our branch there has.
    there: Option<Head>,
}

/// One exchange. It ends with this.
#[derive(Debug)]
pub(super) struct UnderWay(watch::Sender<Traffic>);

impl Together {
    /// Begins an exchange.
    pub(super) fn begin(&self, place: &Place) -> UnderWay {
        let traffic = self.of(place);
        traffic.send_modify(|traffic| traffic.under_way += 1);
        UnderWay(traffic)
    }

    /// Waits until our branch has in a repository what it has `here`, or nobody is about to bring it there; returns which.
    pub(super) async fn is_there(&self, place: &Place, here: impl Fn() -> Head) -> bool {
        let has = |traffic: &Traffic| traffic.there.is_some_and(|there| there.is_at(&here()));
        let mut traffic = self.of(place).subscribe();
        let rest = traffic.wait_for(|traffic| traffic.under_way == 0 || has(traffic)).await;
        rest.is_ok_and(|traffic| has(&traffic))
    }

    fn of(&self, place: &Place) -> watch::Sender<Traffic> {
        let mut all = self.0.lock();
        if let Some(known) = all.get(place) {
            return known.clone();
        }
        let traffic = watch::Sender::default();
        all.insert(place.clone(), traffic.clone());
        traffic
    }
}

impl UnderWay {
    /// What our branch there has after it.
    pub(super) fn brought(&self, head: Head) {
        self.0.send_modify(|traffic| traffic.there = Some(head));
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|traffic| traffic.under_way -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use git2::Oid;

    use super::*;
    use gitcd_core::revision::Revision;

    #[tokio::test]
    async fn who_waits_learns_what_the_last_exchange_with_the_same_repository_brought() {
        let (together, here) = (Together::default(), Place::Folder("/here".into()));
        let data = Oid::from_bytes(&[7; 20]).unwrap();
        let head = Head { revision: Revision::new(3), data, next: data, merges: 0, foreign: None };
        let later = Head { revision: Revision::new(4), ..head };
        let is_there = |place: &Place, head: Head| together.is_there(place, move || head).now_or_never();
        assert_eq!(is_there(&here, head), Some(false), "nobody was there yet");
        let (one, other) = (together.begin(&here), together.begin(&here));
        assert_eq!(is_there(&here, head), None, "two are under way");
        one.brought(head);
        assert_eq!(is_there(&here, head), Some(true), "whatever else is under way");
        assert_eq!(is_there(&here, later), None, "one of them may bring it");
        drop(one);
        assert_eq!(is_there(&here, later), None, "one is under way");
        assert_eq!(is_there(&Place::Folder("/elsewhere".into()), later), Some(false));
        drop(other);
        assert_eq!(is_there(&here, later), Some(false), "nobody will");
        // What is about to be committed is not there for anybody.
        let next = Oid::from_bytes(&[8; 20]).unwrap();
        assert_eq!(is_there(&here, Head { next, merges: 1, ..head }), Some(true));
    }
}
