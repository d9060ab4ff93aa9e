//! Remotes that are branches of one repository: what one of them brings there the others need not.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::super::remote::Place;
use crate::committer::Head;

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

    /// Waits until nobody exchanges anything with a repository, and returns what our branch has there, if that is known.
    pub(super) async fn rest(&self, place: &Place) -> Option<Head> {
        let mut traffic = self.of(place).subscribe();
        let rest = traffic.wait_for(|traffic| traffic.under_way == 0).await;
        rest.ok().and_then(|traffic| traffic.there)
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
    use crate::store::revision::Revision;

    #[tokio::test]
    async fn who_waits_learns_what_the_last_exchange_with_the_same_repository_brought() {
        let (together, here) = (Together::default(), Place::Folder("/here".into()));
        assert_eq!(together.rest(&here).await, None, "nobody was there yet");
        let data = Oid::from_bytes(&[7; 20]).unwrap();
        let head = Head { revision: Revision::new(3), data, next: data, merges: 0, foreign: None };
        let (one, other) = (together.begin(&here), together.begin(&here));
        assert_eq!(together.rest(&here).now_or_never(), None, "two are under way");
        one.brought(head);
        drop(one);
        assert_eq!(together.rest(&here).now_or_never(), None, "one is under way");
        assert_eq!(together.rest(&Place::Folder("/elsewhere".into())).now_or_never(), Some(None));
        drop(other);
        assert_eq!(together.rest(&here).now_or_never(), Some(Some(head)));
    }
}
