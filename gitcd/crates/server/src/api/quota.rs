//! Admission of writes: the quota and its alarm (etcd: `api/v3rpc/quota.go`, `apply/apply.go`).

use gitcd_mvcc::alarms::Alarm;
use gitcd_mvcc::txn::Op;
use gitcd_mvcc::version::OVERHEAD_BYTES;
use tonic::Status;

use super::{Backend, status};

/// Size that a new lease is admitted with.
pub(super) const LEASE_BYTES: usize = 64;

impl Backend {
    /// Admits a write of `bytes` if it fits below `--quota-backend-bytes`.
    ///
    /// # Errors
    /// etcd's "database space exceeded", which also raises the NOSPACE alarm; from then on all such writes are refused until the
    /// alarm is disarmed.
    pub(super) fn admit(&self, bytes: usize) -> Result<(), Status> {
        self.intact()?;
        let alarms = self.store.alarms();
        if bytes == 0 {
            return Ok(());
        }
        if alarms.is_raised(Alarm::NoSpace) {
            return Err(status::no_space());
        }
        let quota = self.limits.quota_backend_bytes;
        if quota != 0 && (self.store.data_size().total + bytes) as u64 >= quota {
            alarms.raise(Alarm::NoSpace, self.member.member_id);
            return Err(status::no_space());
        }
        Ok(())
    }

    /// Refuses requests that write, on a read-only server and while the CORRUPT alarm is raised.
    ///
    /// # Errors
    /// That of the read-only server; etcd's "corrupt cluster".
    pub(super) fn intact(&self) -> Result<(), Status> {
        self.writable()?;
        if self.store.alarms().is_raised(Alarm::Corrupt) { Err(status::corrupt()) } else { Ok(()) }
    }
}

impl Backend {
    /// Refuses requests that change anything, on a read-only server.
    ///
    /// # Errors
    /// That of the hot standby, or of the server that shows the past.
    pub(super) fn writable(&self) -> Result<(), Status> {
        self.store.read_only().map_or(Ok(()), |error| Err(status::from_store(error)))
    }
}

/// Returns how many bytes an operation may add; for a transaction, those of its larger branch.
pub(super) fn cost(op: &Op) -> usize {
    let all = |ops: &[Op]| ops.iter().map(cost).sum::<usize>();
    match op {
        Op::Range(_) | Op::Delete(_) => 0,
        Op::Put(put) => put.key.len() + put.value.as_ref().map_or(0, bytes::Bytes::len) + OVERHEAD_BYTES,
        Op::Txn(txn) => all(&txn.success).max(all(&txn.failure)),
    }
}
