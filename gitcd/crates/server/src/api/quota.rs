//! What is refused while an alarm is raised, and who raises it (etcd: `api/v3rpc/quota.go`, `apply/apply.go`).

use gitcd_mvcc::alarms::Alarm;
use gitcd_mvcc::txn::Op;
use gitcd_mvcc::version::OVERHEAD_BYTES;
use tonic::Status;

use super::{Backend, status};

/// What a lease counts for.
pub(super) const LEASE_BYTES: usize = 64;

impl Backend {
    /// Lets through what adds `bytes` to the data, if there is room for it below `--quota-backend-bytes`.
    ///
    /// # Errors
    /// etcd's "database space exceeded", which also raises the NOSPACE alarm; what does not fit is refused from then on
    /// until the alarm is disarmed.
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

    /// Refuses while the CORRUPT alarm is raised.
    ///
    /// # Errors
    /// etcd's "corrupt cluster".
    pub(super) fn intact(&self) -> Result<(), Status> {
        if self.store.alarms().is_raised(Alarm::Corrupt) { Err(status::corrupt()) } else { Ok(()) }
    }
}

/// What an operation may add to the data: a transaction the larger one of its branches.
pub(super) fn cost(op: &Op) -> usize {
    let all = |ops: &[Op]| ops.iter().map(cost).sum::<usize>();
    match op {
        Op::Range(_) | Op::Delete(_) => 0,
        Op::Put(put) => put.key.len() + put.value.as_ref().map_or(0, bytes::Bytes::len) + OVERHEAD_BYTES,
        Op::Txn(txn) => all(&txn.success).max(all(&txn.failure)),
    }
}
