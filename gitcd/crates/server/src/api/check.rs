//! Validates requests and converts them from protobuf to the store's types (etcd: `api/v3rpc/key.go`).

use std::collections::BTreeSet;

use bytes::Bytes;
use gitcd_core::path;
use gitcd_core::revision::Revision;
use gitcd_mvcc::index::KeyRange;
use gitcd_mvcc::query::{Filter, Range, Sort, SortBy};
use gitcd_mvcc::ranges::Ranges;
use gitcd_mvcc::txn::{Compare, Delete, Op, Put, Relation, Target, Txn};
use tonic::Status;

use super::{Limits, status};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use crate::proto::etcdserverpb::request_op::Request;

/// Refuses a write that is larger than `--max-request-bytes`.
pub(super) fn size(bytes: usize, limits: Limits) -> Result<(), Status> {
    if bytes > limits.max_request_bytes { Err(status::too_large()) } else { Ok(()) }
}

pub(super) fn range(request: pb::RangeRequest) -> Result<Range, Status> {
    if request.key.is_empty() {
        return Err(status::empty_key());
    }
    let order = SortOrder::try_from(request.sort_order).map_err(|_| status::invalid_sort())?;
    let target = SortTarget::try_from(request.sort_target).map_err(|_| status::invalid_sort())?;
    Ok(Range {
        keys: KeyRange::new(request.key, request.range_end),
        revision: (request.revision > 0).then(|| Revision::new(request.revision)),
        limit: usize::try_from(request.limit).unwrap_or(0),
        count_only: request.count_only,
        sort: sort(order, target),
        filter: Filter {
            min_mod: request.min_mod_revision,
            max_mod: request.max_mod_revision,
            min_create: request.min_create_revision,
            max_create: request.max_create_revision,
        },
        known_count: None,
    })
}

/// Does the same for a `RangeStream`. As in etcd, a target without an order is ignored, and results come in the order of keys.
pub(super) fn range_stream(request: pb::RangeRequest) -> Result<Range, Status> {
    let range = range(request)?;
    if range.sort.is_some_and(|sort| !sort.after_limit) {
        return Err(Status::unimplemented("RangeStream does not support custom sort orders"));
    }
    if !range.filter.is_none() {
        return Err(Status::unimplemented("RangeStream does not support revision filters"));
    }
    Ok(Range { sort: None, ..range })
}

fn sort(order: SortOrder, target: SortTarget) -> Option<Sort> {
    let by = match target {
        SortTarget::Key => SortBy::Key,
        SortTarget::Version => SortBy::Version,
        SortTarget::Create => SortBy::Create,
        SortTarget::Mod => SortBy::Mod,
        SortTarget::Value => SortBy::Value,
    };
    // The store returns keys in ascending order; a target without an order means ascending.
    let (descending, after_limit) = (order == SortOrder::Descend, order == SortOrder::None);
    (descending || by != SortBy::Key).then_some(Sort { by, descending, after_limit })
}

pub(super) fn put(request: pb::PutRequest) -> Result<Put, Status> {
    if request.key.is_empty() {
        return Err(status::empty_key());
    }
    if !path::fits(&request.key) {
        return Err(status::too_deep());
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(status::value_provided());
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(status::lease_provided());
    }
    Ok(Put {
        key: request.key,
        value: (!request.ignore_value).then_some(request.value),
        lease: (!request.ignore_lease).then_some(request.lease),
        previous: request.prev_kv,
    })
}

pub(super) fn delete(request: pb::DeleteRangeRequest) -> Result<Delete, Status> {
    if request.key.is_empty() {
        return Err(status::empty_key());
    }
    Ok(Delete { keys: KeyRange::new(request.key, request.range_end), previous: request.prev_kv })
}

pub(super) fn txn(request: pb::TxnRequest, limits: Limits) -> Result<Txn, Status> {
    let txn = convert(request, limits.max_txn_ops)?;
    overlaps(&txn.success)?;
    overlaps(&txn.failure)?;
    Ok(txn)
}

/// `max_ops` limits the operations of a branch together with those nested in it.
fn convert(request: pb::TxnRequest, max_ops: usize) -> Result<Txn, Status> {
    let ops = request.compare.len().max(request.success.len()).max(request.failure.len());
    if ops > max_ops {
        return Err(status::too_many_ops());
    }
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(status::empty_key());
    }
    let branch = |requests: Vec<pb::RequestOp>| -> Result<Vec<Op>, Status> {
        requests.into_iter().map(|request| operation(request, max_ops - ops)).collect()
    };
    Ok(Txn {
        success: branch(request.success)?,
        failure: branch(request.failure)?,
        compares: request.compare.into_iter().map(compare).collect(),
    })
}

fn operation(op: pb::RequestOp, max_ops: usize) -> Result<Op, Status> {
    match op.request {
        Some(Request::RequestRange(request)) => {
            // In a transaction, etcd compares a negative revision with the compact revision; on its own, it means the current one.
            let negative = (request.revision < 0).then(|| Revision::new(request.revision));
            let range = range(request)?;
            Ok(Op::Range(Range { revision: range.revision.or(negative), ..range }))
        }
        Some(Request::RequestPut(request)) => put(request).map(Op::Put),
        Some(Request::RequestDeleteRange(request)) => delete(request).map(Op::Delete),
        Some(Request::RequestTxn(request)) => convert(request, max_ops).map(Op::Txn),
        None => Err(status::key_not_found()),
    }
}

fn compare(compare: pb::Compare) -> Compare {
    let relation = match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Greater) => Relation::Greater,
        Ok(CompareResult::Less) => Relation::Less,
        Ok(CompareResult::NotEqual) => Relation::NotEqual,
        Ok(CompareResult::Equal) => Relation::Equal,
        Err(_) => Relation::Any,
    };
    // A missing or mismatched operand counts as zero, as with protobuf's getters.
    let union = compare.target_union;
    let target = match CompareTarget::try_from(compare.target) {
        Ok(CompareTarget::Create) => {
            Target::Create(if let Some(TargetUnion::CreateRevision(n)) = union { n } else { 0 })
        }
        Ok(CompareTarget::Mod) => Target::Mod(if let Some(TargetUnion::ModRevision(n)) = union { n } else { 0 }),
        Ok(CompareTarget::Value) => {
            Target::Value(if let Some(TargetUnion::Value(value)) = union { value } else { Bytes::new() })
        }
        Ok(CompareTarget::Lease) => Target::Lease(if let Some(TargetUnion::Lease(n)) = union { n } else { 0 }),
        Ok(CompareTarget::Version) => Target::Version(if let Some(TargetUnion::Version(n)) = union { n } else { 0 }),
        Err(_) => Target::Unknown,
    };
    Compare { keys: KeyRange::new(compare.key, compare.range_end), relation, target }
}

/// Possible writes of a branch: keys that it puts, ranges that it deletes.
#[derive(Default)]
struct Writes {
    puts: BTreeSet<Bytes>,
    deletes: Ranges,
}

/// Checks that no path through the transaction changes a key more than once.
fn overlaps(ops: &[Op]) -> Result<Writes, Status> {
    let mut writes = Writes::default();
    for op in ops {
        if let Op::Delete(delete) = op {
            writes.deletes.insert(&delete.keys);
        }
    }
    for op in ops {
        let Op::Txn(txn) = op else { continue };
        let then = overlaps(&txn.success)?;
        let otherwise = overlaps(&txn.failure)?;
        for key in &then.puts {
            writes.put(key, None)?;
        }
        for key in &otherwise.puts {
            // Only one of the two branches is taken: both may put the same key.
            writes.put(key, Some(&then.puts))?;
        }
        writes.deletes.extend(then.deletes);
        writes.deletes.extend(otherwise.deletes);
    }
    for op in ops {
        if let Op::Put(put) = op {
            writes.put(&put.key, None)?;
        }
    }
    Ok(writes)
}

impl Writes {
    fn put(&mut self, key: &Bytes, unless_in: Option<&BTreeSet<Bytes>>) -> Result<(), Status> {
        let twice = self.puts.contains(key) && !unless_in.is_some_and(|other| other.contains(key));
        if twice || self.deletes.contains(key) {
            return Err(status::duplicate_key());
        }
        self.puts.insert(key.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_git_cannot_hold_is_refused_with_the_bounds_and_what_to_do() {
        let put = |bytes: usize| put(pb::PutRequest { key: vec![b'x'; bytes].into(), ..pb::PutRequest::default() });
        put(245_760).unwrap();
        let refused = put(245_761).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        for words in ["1024 names", "240 bytes", "245760 bytes", "shorten the key"] {
            assert!(refused.message().contains(words), "{refused}");
        }
        assert_eq!(path::MAX_DEPTH, 1024);
    }
}
