//! Coordination of remotes that are branches of one repository: what one of them pushes, the others need not push.

use std::collections::HashMap;

use gitcd_engine::committer::Head;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::super::remote::Location;

/// The exchanges in progress with each repository.
#[derive(Debug, Default)]
pub(super) struct Together(Mutex<HashMap<Location, watch::Sender<Traffic>>>);

/// The exchanges with one repository.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    under_way: usize,
    /// Our head that is on our branch there.
    there: Option<Head>,
}

/// An exchange in progress; dropping it ends the exchange.
#[derive(Debug)]
pub(super) struct UnderWay(watch::Sender<Traffic>);

impl Together {
    /// Starts an exchange.
    pub(super) fn begin(&self, location: &Location) -> UnderWay {
        let traffic = self.of(location);
        traffic.send_modify(|traffic| traffic.under_way += 1);
        UnderWay(traffic)
    }

    /// Waits until our branch in a repository is at the head `here`, or no exchange is in progress; returns whether it is.
    pub(super) async fn is_there(&self, location: &Location, here: impl Fn() -> Head) -> bool {
        let has = |traffic: &Traffic| traffic.there.is_some_and(|there| there.is_at(&here()));
        let mut traffic = self.of(location).subscribe();
        let rest = traffic.wait_for(|traffic| traffic.under_way == 0 || has(traffic)).await;
        rest.is_ok_and(|traffic| has(&traffic))
    }

    fn of(&self, location: &Location) -> watch::Sender<Traffic> {
        let mut all = self.0.lock();
        if let Some(known) = all.get(location) {
            return known.clone();
        }
        let traffic = watch::Sender::default();
        all.insert(location.clone(), traffic.clone());
        traffic
    }
}

impl UnderWay {
    /// Records our head that the exchange has pushed or found there.
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
    async fn a_waiting_remote_observes_pushes_of_other_exchanges_with_its_repository() {
        let (together, here) = (Together::default(), Location::Folder("/here".into()));
        let data = Oid::from_bytes(&[7; 20]).unwrap();
        let head = Head { revision: Revision::new(3), data, next: data, merges: 0, foreign: None };
        let later = Head { revision: Revision::new(4), ..head };
        let is_there = |location: &Location, head: Head| together.is_there(location, move || head).now_or_never();
        assert_eq!(is_there(&here, head), Some(false), "no exchange was started");
        let (one, other) = (together.begin(&here), together.begin(&here));
        assert_eq!(is_there(&here, head), None, "two exchanges are in progress");
        one.brought(head);
        assert_eq!(is_there(&here, head), Some(true), "regardless of other exchanges");
        assert_eq!(is_there(&here, later), None, "either may push it");
        drop(one);
        assert_eq!(is_there(&here, later), None, "one exchange is in progress");
        assert_eq!(is_there(&Location::Folder("/elsewhere".into()), later), Some(false));
        drop(other);
        assert_eq!(is_there(&here, later), Some(false), "no exchange is in progress");
        // A commit that is only prepared does not count.
        let next = Oid::from_bytes(&[8; 20]).unwrap();
        assert_eq!(is_there(&here, Head { next, merges: 1, ..head }), Some(true));
    }
}
