//! Cleanup of places whose clients disconnect.

use bytes::Bytes;
use gitcd_core::revision::Revision;

use super::{Caller, Place};

/// Gives up a place if its client disconnects while it waits.
#[derive(Debug)]
pub(in crate::api) struct GiveUp {
    place: Option<(Caller, Bytes, Revision)>,
}

impl GiveUp {
    /// Gives up the place when dropped, unless [`GiveUp::keep`] is called.
    pub(in crate::api) fn unless_kept(caller: &Caller, place: &Place) -> Self {
        Self { place: Some((caller.clone(), place.key.clone(), place.created)) }
    }

    /// Leaves the place to the client.
    pub(in crate::api) fn keep(mut self) {
        self.place = None;
    }

    /// Gives up the place and waits until that is done.
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
        tracing::debug!(%error, "cannot give up a place in line; it stays until its lease expires");
    }
}
