//! Places of clients that go away.

use bytes::Bytes;
use gitcd_core::revision::Revision;

use super::{Caller, Place};

/// Gives a place up when a client goes away while it waits.
#[derive(Debug)]
pub(in crate::api) struct GiveUp {
    place: Option<(Caller, Bytes, Revision)>,
}

impl GiveUp {
    /// Unless [`GiveUp::keep`] is called.
    pub(in crate::api) fn unless_kept(caller: &Caller, place: &Place) -> Self {
        Self { place: Some((caller.clone(), place.key.clone(), place.created)) }
    }

    /// The place is the client's now.
    pub(in crate::api) fn keep(mut self) {
        self.place = None;
    }

    /// Gives it up and waits until it is.
    pub(in crate::api) async fn now(mut self) {
        if let Some((caller, key, created)) = self.place.take() {
            give_up(&caller, &key, created).await;
        }
    }
}

impl Drop for GiveUp {
    fn drop(&mut self) {
        let Some((caller, key, created)) = self.place.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { give_up(&caller, &key, created).await });
        }
    }
}

async fn give_up(caller: &Caller, key: &Bytes, created: Revision) {
    if let Err(error) = caller.leave(key, created).await {
        tracing::debug!(%error, "a place in line is left to its lease");
    }
}
