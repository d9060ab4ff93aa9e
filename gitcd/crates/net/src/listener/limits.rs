//! Limits on open connections: of a listener, of a client's address, and of the whole process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use gitcd_core::descriptors;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Network;

/// Largest default limits. A client of Kubernetes has one connection for each kind.
const MOST: Limits = Limits { connections: 8192, per_address: 4096 };

/// Limits on the connections of a listener that are open at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of the listener. At the limit, new clients wait until others disconnect.
    pub connections: usize,
    /// Connections from one address. At the limit, its new connections are closed.
    pub per_address: usize,
}

impl Limits {
    /// Returns the limits for a process that may have this many files open. A quarter of them stays free for files, whatever the
    /// clients do; one listener gets at most half of them, so that another one still answers, and one address at most a third.
    pub fn of_descriptors(descriptors: u64) -> Self {
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        Self {
            connections: (descriptors / 2).clamp(1, MOST.connections),
            per_address: (descriptors / 3).clamp(1, MOST.per_address),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::of_descriptors(descriptors::limit())
    }
}

/// The connections of all listeners of this process, which share its file descriptors.
static PROCESS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let connections = usize::try_from(descriptors::limit() / 4 * 3).unwrap_or(usize::MAX);
    Arc::new(Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS)))
});

/// Admits the connections of a listener.
#[derive(Debug)]
pub(super) struct Admission {
    limits: Limits,
    places: Arc<Semaphore>,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    network: Arc<Network>,
    is_full: AtomicBool,
}

/// A free place for a connection that is not accepted yet.
pub(super) struct Place {
    listener: OwnedSemaphorePermit,
    process: OwnedSemaphorePermit,
}

/// The place of an open connection, which is free again once this is dropped.
#[derive(Debug)]
pub(super) struct Admitted {
    _listener: OwnedSemaphorePermit,
    _process: OwnedSemaphorePermit,
    address: IpAddr,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    network: Arc<Network>,
}

impl Admission {
    pub(super) fn new(limits: Limits, network: Arc<Network>) -> Self {
        let places = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
        network.connections.limit.fetch_add(limits.connections as u64, Ordering::Relaxed);
        Self { limits, places, by_address: Arc::default(), network, is_full: AtomicBool::new(false) }
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// Waits for a free place. Cancel-safe.
    pub(super) async fn place(&self) -> Place {
        let (places, process) = (self.places.clone(), PROCESS.clone());
        if (places.available_permits() == 0 || process.available_permits() == 0)
            && !self.is_full.swap(true, Ordering::Relaxed)
        {
            self.network.connections.stalls.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                connections = self.limits.connections,
                "the limit of connections is reached: new clients wait until others disconnect"
            );
        }
        let listener = places.acquire_owned().await.expect("the semaphore is never closed");
        let process = process.acquire_owned().await.expect("the semaphore is never closed");
        self.is_full.store(false, Ordering::Relaxed);
        Place { listener, process }
    }

    /// Gives a place to a connection; `None` if its address has reached its limit.
    pub(super) fn admit(&self, place: Place, address: IpAddr) -> Option<Admitted> {
        let address = address.to_canonical();
        let mut by_address = self.by_address.lock();
        let open = by_address.entry(address).or_default();
        if *open >= self.limits.per_address {
            self.network.connections.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *open += 1;
        self.network.connections.open.fetch_add(1, Ordering::Relaxed);
        let (by_address, network) = (self.by_address.clone(), self.network.clone());
        Some(Admitted { _listener: place.listener, _process: place.process, address, by_address, network })
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.network.connections.limit.fetch_sub(self.limits.connections as u64, Ordering::Relaxed);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.network.connections.open.fetch_sub(1, Ordering::Relaxed);
        if let Entry::Occupied(mut open) = self.by_address.lock().entry(self.address) {
            *open.get_mut() -= 1;
            if *open.get() == 0 {
                open.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn default_limits_leave_descriptors_for_files_and_for_other_listeners() {
        for (descriptors, connections, per_address) in
            [(0, 1, 1), (64, 32, 21), (1024, 512, 341), (1 << 20, 8192, 4096)]
        {
            assert_eq!(Limits::of_descriptors(descriptors), Limits { connections, per_address }, "{descriptors}");
        }
    }

    #[tokio::test]
    async fn places_are_free_again_when_connections_end() {
        let network = Arc::new(Network::default());
        let admission = Admission::new(Limits { connections: 3, per_address: 2 }, network.clone());
        let [one, other] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
        let counted = || {
            let of = &network.connections;
            [&of.open, &of.refused, &of.stalls].map(|counter| counter.load(Ordering::Relaxed))
        };
        let first = admission.admit(admission.place().await, one).unwrap();
        let second = admission.admit(admission.place().await, one).unwrap();
        assert!(admission.admit(admission.place().await, one).is_none(), "the address has reached its limit");
        let mapped = IpAddr::V6(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped());
        assert!(admission.admit(admission.place().await, mapped).is_none(), "it is the same address");
        let third = admission.admit(admission.place().await, other).unwrap();
        assert_eq!(counted(), [3, 2, 0]);
        let mut waiting = Box::pin(admission.place());
        assert!(futures_poll(waiting.as_mut()).is_pending());
        assert_eq!(counted(), [3, 2, 1]);
        drop(first);
        let place = waiting.await;
        assert!(admission.admit(place, one).is_some());
        drop((second, third));
        assert_eq!(counted()[0], 0);
        assert!(admission.by_address.lock().is_empty());
        drop(admission);
        assert_eq!(network.connections.limit.load(Ordering::Relaxed), 0);
    }

    fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
        future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    }
}
