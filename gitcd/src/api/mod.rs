//! The etcd v3 API: one file a gRPC service. A handler checks, calls the store, answers.

mod check;
mod cluster;
mod health;
mod kv;
mod lease;
mod maintenance;
mod status;
mod watch;

use std::sync::Arc;

use bytes::Bytes;

pub use self::cluster::Member;
use tonic_health::pb::health_server::HealthServer;

use crate::proto::etcdserverpb::ResponseHeader;
use crate::proto::etcdserverpb::cluster_server::ClusterServer;
use crate::proto::etcdserverpb::kv_server::KvServer;
use crate::proto::etcdserverpb::lease_server::LeaseServer;
use crate::proto::etcdserverpb::maintenance_server::MaintenanceServer;
use crate::proto::etcdserverpb::watch_server::WatchServer;
use crate::proto::mvccpb::KeyValue;
use crate::store::Store;
use crate::store::revision::Revision;
use crate::store::version::Version;
use crate::watch::stream::Settings;

/// The version of etcd whose behaviour is served; clients compare it with what they need.
pub const ETCD_VERSION: &str = "3.6.16";
/// The oldest version that a cluster with this member can be.
pub const CLUSTER_VERSION: &str = "3.6.0";
/// A single member has won exactly one election.
const RAFT_TERM: u64 = 2;
/// What a request may be larger than its limit for framing, as in etcd.
const OVERHEAD_BYTES: usize = 512 << 10;

/// Limits on requests; flags and defaults are etcd's.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest request in bytes.
    pub max_request_bytes: usize,
    /// Most operations in a transaction.
    pub max_txn_ops: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_request_bytes: 1_572_864, max_txn_ops: 128 }
    }
}

/// One branch, as its clients see it.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Its store.
    pub store: Arc<Store>,
    /// Who we are to clients.
    pub member: Arc<Member>,
    /// Limits on requests.
    pub limits: Limits,
    /// How often idle watchers that asked for it are told the revision.
    pub progress_interval: std::time::Duration,
    /// The repository, for sizes.
    pub repository: Arc<std::path::PathBuf>,
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
            raft_term: RAFT_TERM,
        }
    }

    fn watch_settings(&self) -> Settings {
        Settings {
            header: self.header_base(),
            progress_interval: self.progress_interval,
            max_request_bytes: self.limits.max_request_bytes + OVERHEAD_BYTES,
        }
    }
}

/// All gRPC services of a branch.
pub fn routes(backend: &Backend) -> axum::Router {
    // Larger messages are decoded, so that the answer is etcd's error and not the transport's.
    let decode_limit = 2 * (backend.limits.max_request_bytes + OVERHEAD_BYTES);
    let mut routes = tonic::service::Routes::builder();
    routes
        .add_service(
            KvServer::new(backend.clone())
                .max_decoding_message_size(decode_limit)
                .max_encoding_message_size(usize::MAX),
        )
        .add_service(
            WatchServer::new(backend.clone())
                .max_decoding_message_size(decode_limit)
                .max_encoding_message_size(usize::MAX),
        )
        .add_service(LeaseServer::new(backend.clone()))
        .add_service(ClusterServer::new(backend.clone()))
        .add_service(MaintenanceServer::new(backend.clone()))
        .add_service(HealthServer::new(backend.clone()));
    routes.routes().into_axum_router().layer(tower::util::MapResponseLayer::new(status::of_transport))
}

/// A pair on the wire.
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
