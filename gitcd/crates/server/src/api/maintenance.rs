//! The Maintenance service.

use bytes::Bytes;
use gitcd_core::blocking;
use gitcd_core::revision::Revision;
use gitcd_mvcc::Error;
use gitcd_mvcc::index::KeyRange;
use gitcd_mvcc::work::Timed;
use tonic::{Request, Response, Status};

use super::snapshot::Parts;
use super::{Backend, ETCD_VERSION, downgrade, status};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::maintenance_server::Maintenance;

#[tonic::async_trait]
impl Maintenance for Backend {
    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Result<Response<pb::AlarmResponse>, Status> {
        let request = request.into_inner();
        if request.action != pb::alarm_request::AlarmAction::Get as i32 {
            self.writable()?;
        }
        let alarms = self.alarm_answer(request);
        Ok(Response::new(pb::AlarmResponse { header: Some(self.header(self.store.revision())), alarms }))
    }

    async fn status(&self, _: Request<pb::StatusRequest>) -> Result<Response<pb::StatusResponse>, Status> {
        let revision = self.store.revision();
        let size = self.store.data_size();
        let no_leader = self.store.newest().err().map(|error| status::from_store(error).message().to_owned());
        Ok(Response::new(pb::StatusResponse {
            header: Some(self.header(revision)),
            version: ETCD_VERSION.to_owned(),
            // Size of keys with their history since the compaction, to which the quota applies; Git's history is not counted.
            db_size: size.total as i64,
            db_size_in_use: size.total as i64,
            db_size_quota: self.limits.quota_backend_bytes as i64,
            leader: if no_leader.is_some() { 0 } else { self.member.member_id },
            raft_index: revision.get() as u64,
            raft_applied_index: revision.get() as u64,
            raft_term: crate::member::RAFT_TERM,
            storage_version: super::CLUSTER_VERSION.to_owned(),
            errors: no_leader.into_iter().chain(self.store.poisoned()).chain(self.alarm_errors()).collect(),
            downgrade_info: Some(pb::DowngradeInfo::default()),
            ..pb::StatusResponse::default()
        }))
    }

    async fn defragment(&self, _: Request<pb::DefragmentRequest>) -> Result<Response<pb::DefragmentResponse>, Status> {
        if self.store.is_past() {
            self.writable()?;
        }
        let _timed = Timed::begin(self.store.counters.work.clone(), |work| &work.defragmentations);
        // It may take minutes, but clients wait for seconds only, so it runs in the background.
        self.maintenance.ask();
        Ok(Response::new(pb::DefragmentResponse { header: None }))
    }

    async fn hash(&self, _: Request<pb::HashRequest>) -> Result<Response<pb::HashResponse>, Status> {
        let _timed = Timed::begin(self.store.counters.work.clone(), |work| &work.hash);
        let Hashed { current, hash, .. } = self.hash_at(Revision::ZERO).await?;
        Ok(Response::new(pb::HashResponse { header: Some(self.header(current)), hash }))
    }

    async fn hash_kv(&self, request: Request<pb::HashKvRequest>) -> Result<Response<pb::HashKvResponse>, Status> {
        let _timed = Timed::begin(self.store.counters.work.clone(), |work| &work.hash_at_revision);
        let hashed = self.hash_at(Revision::new(request.into_inner().revision)).await?;
        Ok(Response::new(pb::HashKvResponse {
            header: Some(self.header(hashed.current)),
            hash: hashed.hash,
            compact_revision: if hashed.compacted == Revision::ZERO { -1 } else { hashed.compacted.get() },
            hash_revision: hashed.at.get(),
        }))
    }

    type SnapshotStream = Parts;

    async fn snapshot(&self, _: Request<pb::SnapshotRequest>) -> Result<Response<Self::SnapshotStream>, Status> {
        // A standby does not have the whole state of the writer, such as leases.
        if self.store.is_standby() {
            return Err(status::from_store(Error::Standby));
        }
        self.spool().await.map(Response::new)
    }

    async fn move_leader(
        &self,
        request: Request<pb::MoveLeaderRequest>,
    ) -> Result<Response<pb::MoveLeaderResponse>, Status> {
        // The only member leads already.
        if request.into_inner().target_id == self.member.member_id {
            Ok(Response::new(pb::MoveLeaderResponse { header: None }))
        } else {
            Err(status::bad_leader_transferee())
        }
    }

    async fn downgrade(
        &self,
        request: Request<pb::DowngradeRequest>,
    ) -> Result<Response<pb::DowngradeResponse>, Status> {
        use pb::downgrade_request::DowngradeAction;
        let request = request.into_inner();
        match DowngradeAction::try_from(request.action) {
            Ok(DowngradeAction::Validate) => downgrade::check(&request.version)?,
            Ok(DowngradeAction::Enable) => {
                downgrade::check(&request.version)?;
                return Err(status::one_storage_version());
            }
            // As in etcd, a success even though no downgrade is in progress.
            Ok(DowngradeAction::Cancel) => {}
            Err(_) => return Err(Status::unknown("etcdserver: unknown method")),
        }
        let header = Some(self.header(self.store.revision()));
        Ok(Response::new(pb::DowngradeResponse { header, version: downgrade::CLUSTER_MINOR.to_owned() }))
    }
}

/// A checksum, and the revisions at the time it was computed.
struct Hashed {
    at: Revision,
    current: Revision,
    compacted: Revision,
    hash: u32,
}

impl Backend {
    /// Computes a checksum over all pairs at a revision, or now for 0. Stores with equal pairs have equal checksums.
    async fn hash_at(&self, asked: Revision) -> Result<Hashed, Status> {
        let store = self.store.clone();
        let hashed = blocking::run("hash the keys", move || {
            // A consistent snapshot.
            let (at, current, compacted, pairs) = store.with_index(|index, current| {
                let at = if asked == Revision::ZERO { current } else { asked };
                // A negative revision is accepted, too, and has no keys.
                if at > current {
                    return Err(Error::Future);
                }
                if at > Revision::ZERO && at < index.compacted() {
                    return Err(Error::Compacted);
                }
                let all = KeyRange::From(Bytes::new());
                Ok((at, current, index.compacted(), index.range(&all, at).cloned().collect::<Vec<_>>()))
            })?;
            // Not 0 for an empty store: clients take 0 for a missing hash.
            let mut hasher = crc32fast::Hasher::new_with_initial(1);
            for version in pairs {
                let value = version.value(store.segments())?;
                for field in [&version.key[..], &value[..]] {
                    hasher.update(&(field.len() as u64).to_le_bytes());
                    hasher.update(field);
                }
                let numbers =
                    [version.create_revision.get(), version.mod_revision.get(), version.version, version.lease];
                for number in numbers {
                    hasher.update(&number.to_le_bytes());
                }
            }
            Ok::<_, Error>(Hashed { at, current, compacted, hash: hasher.finalize() })
        });
        match hashed.await {
            Ok(hashed) => hashed.map_err(status::from_store),
            Err(error) => Err(Status::internal(format!("gitcd: {error}"))),
        }
    }
}
