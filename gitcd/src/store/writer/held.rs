//! What was made durable under a writer lease that has ended since.

use super::{Batch, Writer};
use crate::store::Error;

impl Writer {
    /// Makes a durable batch visible if clients may be told of it; if not, it is kept: whether it will ever be seen depends on
    /// whether this server gets its lease back.
    pub(super) fn show(&mut self, mut batch: Batch) -> Result<(), Error> {
        if self.store.newest().is_ok() {
            self.publish(&mut batch);
            return Ok(());
        }
        if batch.is_empty() {
            return Err(Error::NoLease);
        }
        match &mut self.held {
            None => self.held = Some(batch),
            Some(held) => held.append(batch),
        }
        Err(Error::InDoubt)
    }

    /// Makes visible what was kept, if this server may tell of it again. Before anything else: what is written now rests on it.
    pub(super) fn release(&mut self) {
        if self.held.is_some()
            && self.store.newest().is_ok()
            && let Some(mut held) = self.held.take()
        {
            tracing::info!("the lease is back: writes that nobody was told of become visible");
            self.publish(&mut held);
        }
    }
}

impl Batch {
    /// Whether it changes nothing.
    fn is_empty(&self) -> bool {
        self.first.is_none() && self.leases.is_empty() && self.compact.is_none() && self.merges.is_empty()
    }

    /// Adds a later one.
    fn append(&mut self, later: Batch) {
        self.leases.extend(later.leases);
        self.merges.extend(later.merges);
        self.positions.extend(later.positions);
        self.compact = self.compact.max(later.compact);
        self.first = self.first.or(later.first);
    }
}
