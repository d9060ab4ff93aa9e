//! Writes in doubt: durable, but the writer lease has ended since.

use super::{Batch, Writer};
use crate::Error;

impl Writer {
    /// Makes a durable batch visible, or keeps it in doubt while the fence is closed: it only becomes visible if this server
    /// regains its lease.
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

    /// Makes writes in doubt visible if the fence is open again. Called before all else, since new writes build on them.
    pub(super) fn release(&mut self) {
        if self.held.is_some()
            && self.store.newest().is_ok()
            && let Some(mut held) = self.held.take()
        {
            tracing::info!("the writer lease is back: writes in doubt become visible");
            self.publish(&mut held);
        }
    }
}

impl Batch {
    /// Returns whether the batch changes nothing.
    fn is_empty(&self) -> bool {
        self.first.is_none() && self.leases.is_empty() && self.compact.is_none() && self.merges.is_empty()
    }

    /// Appends a later batch.
    fn append(&mut self, later: Batch) {
        self.leases.extend(later.leases);
        self.merges.extend(later.merges);
        self.positions.extend(later.positions);
        self.compact = self.compact.max(later.compact);
        self.first = self.first.or(later.first);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::Error;
    use crate::writer::tests::{Disk, Step};
    use gitcd_core::fence::{Fence, Moment};
    use gitcd_core::revision::Revision;

    #[test]
    fn a_write_after_the_end_of_the_lease_is_invisible_until_it_is_renewed() {
        let mut disk = Disk::new();
        let fence = Arc::new(Fence::default());
        disk.store().fence(fence.clone());
        fence.open_until(Moment::now() + Duration::from_hours(1));
        assert_eq!(disk.batch(&[Step::Put(1, 0)]), [Ok(())]);
        let before = disk.store().revision();
        // The fence is open when the batch starts, and closed when it is durable.
        disk.close_in_the_next_batch(&fence);
        let in_doubt = || Err(Error::InDoubt);
        let doubtful = disk.batch(&[Step::Grant(7), Step::Put(2, 0), Step::Compact(255)]);
        assert_eq!(doubtful, [in_doubt(), in_doubt(), in_doubt()]);
        assert_eq!(disk.store().revision(), before);
        assert!(disk.store().log(Revision::new(0), 10).iter().all(|entry| entry.revision <= before));
        let refused = disk.batch(&[Step::Put(3, 0), Step::Revoke(7), Step::Compact(255)]);
        assert!(refused.iter().all(|answer| *answer == Err(Error::NoLease)), "{refused:?}");
        assert_eq!(disk.store().compacted(), Revision::ZERO);
        fence.open_until(Moment::now() + Duration::from_hours(1));
        assert_eq!(disk.batch(&[Step::Put(4, 7)]), [Ok(())]);
        assert_eq!(disk.store().revision().since(before), 2);
        assert_eq!(disk.store().compacted(), before);
        assert_eq!(disk.store().log(before.next(), 10).len(), 2);
    }
}
