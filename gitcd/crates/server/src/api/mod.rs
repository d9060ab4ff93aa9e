//! The etcd v3 API: one file per gRPC service. A handler checks the request, calls the store and answers.

mod alarm;
mod auth;
mod check;
mod cluster;
mod concurrency;
mod downgrade;
mod election;
mod health;
mod history;
mod kv;
mod lease;
mod lock;
mod maintenance;
mod quota;
pub mod range;
mod range_counts;
mod range_stream;
mod reflection;
mod snapshot;
pub(crate) mod status;
pub mod watch;

use std::sync::Arc;

use bytes::Bytes;
use gitcd_core::revision::Revision;
use gitcd_engine::maintenance::Maintenance;
use gitcd_mvcc::Store;
use gitcd_mvcc::version::Version;

pub use self::history::{GitHistory, HistoryCounters};
pub use self::range_counts::RangeCountCache;
pub use self::snapshot::Spooler;
pub use crate::member::{CLUSTER_VERSION, ETCD_VERSION, Member};
use tonic_health::pb::health_server::HealthServer;

use tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET as REFLECTION;
use tonic_reflection::server::v1::ServerReflectionServer;

use self::reflection::Reflection;
use self::watch::WatchServer;
use self::watch::stream::Settings;
use crate::proto::etcdserverpb::ResponseHeader;
use crate::proto::etcdserverpb::auth_server::AuthServer;
use crate::proto::etcdserverpb::cluster_server::ClusterServer;
use crate::proto::etcdserverpb::kv_server::KvServer;
use crate::proto::etcdserverpb::lease_server::LeaseServer;
use crate::proto::etcdserverpb::maintenance_server::MaintenanceServer;
use crate::proto::mvccpb::KeyValue;
use crate::proto::v3electionpb::election_server::ElectionServer;
use crate::proto::v3lockpb::lock_server::LockServer;

/// How much larger than the limit a message may be, for framing, as in etcd.
const OVERHEAD_BYTES: usize = 512 << 10;

/// Limits on requests; flags and defaults are etcd's.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest write in bytes. Messages of any kind may be 512 KiB larger.
    pub max_request_bytes: usize,
    /// Most operations in a transaction.
    pub max_txn_ops: usize,
    /// Size of keys and values with their history at which the NOSPACE alarm is raised, in bytes; 0 for no limit.
    pub quota_backend_bytes: u64,
}

/// etcd's default for [`Limits::quota_backend_bytes`].
pub const DEFAULT_QUOTA_BYTES: u64 = 2 << 30;

impl Default for Limits {
    fn default() -> Self {
        Self { max_request_bytes: 1_572_864, max_txn_ops: 128, quota_backend_bytes: DEFAULT_QUOTA_BYTES }
    }
}

/// The branch that the services work on.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Its store.
    pub store: Arc<Store>,
    /// This server as a cluster member.
    pub member: Arc<Member>,
    /// Limits on requests.
    pub limits: Limits,
    /// How often idle watchers that asked for progress notifications get one.
    pub progress_interval: std::time::Duration,
    /// The repository, for temporary files.
    pub repository: Arc<std::path::PathBuf>,
    /// Snapshots that are being written.
    pub snapshots: Spooler,
    /// Key counts of lists in progress.
    pub pages: Arc<RangeCountCache>,
    /// Reads of compacted revisions from Git; `None` if they are refused.
    pub history: Option<Arc<GitHistory>>,
    /// Maintenance of the repository.
    pub maintenance: Arc<Maintenance>,
}

impl Backend {
    fn header(&self, revision: Revision) -> ResponseHeader {
        ResponseHeader { revision: revision.get(), ..self.header_base() }
    }

    fn header_base(&self) -> ResponseHeader {
        ResponseHeader {
            cluster_id: self.member.cluster_id,
            member_id: self.member.member_id,
            revision: 0,
            raft_term: crate::member::RAFT_TERM,
        }
    }

    fn watch_settings(&self) -> Settings {
        Settings {
            header: self.header_base(),
            progress_interval: self.progress_interval,
            max_request_bytes: message_limit(&self.limits),
        }
    }
}

/// Returns the largest accepted message of any service, as in etcd: a write slightly above the limit gets etcd's error, not the
/// transport's.
pub fn message_limit(limits: &Limits) -> usize {
    limits.max_request_bytes.saturating_add(OVERHEAD_BYTES)
}

/// Returns all gRPC services of a branch.
pub fn routes(backend: &Backend) -> axum::Router {
    let limit = message_limit(&backend.limits);
    let mut routes = tonic::service::Routes::builder();
    macro_rules! add {
        ($($server:ident),+) => {
            $(routes.add_service(
                $server::new(backend.clone()).max_decoding_message_size(limit).max_encoding_message_size(usize::MAX),
            );)+
        };
    }
    add!(KvServer, LeaseServer, ClusterServer, MaintenanceServer, AuthServer, LockServer, ElectionServer);
    add!(HealthServer);
    routes.add_service(WatchServer::new(backend.clone(), limit));
    let described = Reflection::new(&[crate::proto::DESCRIPTORS, tonic_health::pb::FILE_DESCRIPTOR_SET, REFLECTION]);
    let described = described.expect("the protobuf compiler generated the descriptors");
    routes.add_service(ServerReflectionServer::new(described).max_decoding_message_size(limit));
    routes.routes().into_axum_router().fallback(unknown)
}

/// Answers requests to unknown services.
async fn unknown(request: axum::extract::Request) -> axum::response::Response {
    let service = request.uri().path().trim_start_matches('/').split('/').next().unwrap_or_default();
    tonic::Status::unimplemented(format!("unknown service {service}")).into_http()
}

/// Converts a version to a pair on the wire.
pub(crate) fn key_value(version: &Version, value: Bytes) -> KeyValue {
    KeyValue {
        key: version.key.clone(),
        create_revision: version.create_revision.get(),
        mod_revision: version.mod_revision.get(),
        version: version.version,
        value,
        lease: version.lease,
    }
}
