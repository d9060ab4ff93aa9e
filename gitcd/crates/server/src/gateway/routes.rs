//! Paths of the methods (etcd: the annotations in `api/etcdserverpb/rpc.proto` and similar files).

use std::collections::HashMap;
use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, MessageDescriptor};

use super::json;
use crate::proto;

/// Prefix of all paths, and the one from before etcd 3.4.
const PREFIXES: [&str; 2] = ["/v3/", "/v3beta/"];

/// The path after the prefix, and its method.
const ROUTES: &[(&str, &str)] = &[
    ("kv/range", "etcdserverpb.KV/Range"),
    ("kv/put", "etcdserverpb.KV/Put"),
    ("kv/deleterange", "etcdserverpb.KV/DeleteRange"),
    ("kv/txn", "etcdserverpb.KV/Txn"),
    ("kv/compaction", "etcdserverpb.KV/Compact"),
    ("watch", "etcdserverpb.Watch/Watch"),
    ("lease/grant", "etcdserverpb.Lease/LeaseGrant"),
    ("lease/revoke", "etcdserverpb.Lease/LeaseRevoke"),
    ("lease/keepalive", "etcdserverpb.Lease/LeaseKeepAlive"),
    ("lease/timetolive", "etcdserverpb.Lease/LeaseTimeToLive"),
    ("lease/leases", "etcdserverpb.Lease/LeaseLeases"),
    ("kv/lease/revoke", "etcdserverpb.Lease/LeaseRevoke"),
    ("kv/lease/timetolive", "etcdserverpb.Lease/LeaseTimeToLive"),
    ("kv/lease/leases", "etcdserverpb.Lease/LeaseLeases"),
    ("cluster/member/add", "etcdserverpb.Cluster/MemberAdd"),
    ("cluster/member/remove", "etcdserverpb.Cluster/MemberRemove"),
    ("cluster/member/update", "etcdserverpb.Cluster/MemberUpdate"),
    ("cluster/member/list", "etcdserverpb.Cluster/MemberList"),
    ("cluster/member/promote", "etcdserverpb.Cluster/MemberPromote"),
    ("maintenance/alarm", "etcdserverpb.Maintenance/Alarm"),
    ("maintenance/status", "etcdserverpb.Maintenance/Status"),
    ("maintenance/defragment", "etcdserverpb.Maintenance/Defragment"),
    ("maintenance/hash", "etcdserverpb.Maintenance/Hash"),
    ("maintenance/hashkv", "etcdserverpb.Maintenance/HashKV"),
    ("maintenance/snapshot", "etcdserverpb.Maintenance/Snapshot"),
    ("maintenance/transfer-leadership", "etcdserverpb.Maintenance/MoveLeader"),
    ("maintenance/downgrade", "etcdserverpb.Maintenance/Downgrade"),
    ("auth/enable", "etcdserverpb.Auth/AuthEnable"),
    ("auth/disable", "etcdserverpb.Auth/AuthDisable"),
    ("auth/status", "etcdserverpb.Auth/AuthStatus"),
    ("auth/authenticate", "etcdserverpb.Auth/Authenticate"),
    ("auth/user/add", "etcdserverpb.Auth/UserAdd"),
    ("auth/user/get", "etcdserverpb.Auth/UserGet"),
    ("auth/user/list", "etcdserverpb.Auth/UserList"),
    ("auth/user/delete", "etcdserverpb.Auth/UserDelete"),
    ("auth/user/changepw", "etcdserverpb.Auth/UserChangePassword"),
    ("auth/user/grant", "etcdserverpb.Auth/UserGrantRole"),
    ("auth/user/revoke", "etcdserverpb.Auth/UserRevokeRole"),
    ("auth/role/add", "etcdserverpb.Auth/RoleAdd"),
    ("auth/role/get", "etcdserverpb.Auth/RoleGet"),
    ("auth/role/list", "etcdserverpb.Auth/RoleList"),
    ("auth/role/delete", "etcdserverpb.Auth/RoleDelete"),
    ("auth/role/grant", "etcdserverpb.Auth/RoleGrantPermission"),
    ("auth/role/revoke", "etcdserverpb.Auth/RoleRevokePermission"),
    ("election/campaign", "v3electionpb.Election/Campaign"),
    ("election/proclaim", "v3electionpb.Election/Proclaim"),
    ("election/leader", "v3electionpb.Election/Leader"),
    ("election/observe", "v3electionpb.Election/Observe"),
    ("election/resign", "v3electionpb.Election/Resign"),
    ("lock/lock", "v3lockpb.Lock/Lock"),
    ("lock/unlock", "v3lockpb.Lock/Unlock"),
];

/// Whether a path belongs to the gateway, even without a method for it.
pub(crate) fn takes(path: &str) -> bool {
    PREFIXES.iter().any(|prefix| path.starts_with(prefix))
}

/// The method of a path.
#[derive(Debug)]
pub(super) struct Route {
    /// The method's path in gRPC.
    pub(super) method: String,
    input: MessageDescriptor,
    output: MessageDescriptor,
    takes_many: bool,
    gives_many: bool,
}

impl Route {
    /// Whether the client sends a stream of messages.
    pub(super) fn takes_many(&self) -> bool {
        self.takes_many
    }

    /// Whether the response is a stream of messages.
    pub(super) fn gives_many(&self) -> bool {
        self.gives_many
    }

    /// Converts a JSON object to an encoded request.
    pub(super) fn encode(&self, object: &[u8]) -> Result<Vec<u8>, tonic::Status> {
        json::to_message(&self.input, object)
    }

    /// Converts an encoded response to JSON.
    pub(super) fn decode(&self, message: bytes::Bytes) -> Result<Vec<u8>, tonic::Status> {
        json::from_message(&self.output, message)
    }
}

pub(super) fn find(path: &str) -> Option<&'static Route> {
    /// Built on first use: most servers only have gRPC clients.
    static TABLE: LazyLock<HashMap<&str, Route>> = LazyLock::new(table);
    PREFIXES.iter().find_map(|prefix| TABLE.get(path.strip_prefix(prefix)?))
}

fn table() -> HashMap<&'static str, Route> {
    let pool = DescriptorPool::decode(proto::DESCRIPTORS).expect("the protobuf compiler generated the descriptors");
    let route = |method: &str| {
        let (service, name) = method.split_once('/')?;
        let method = pool.get_service_by_name(service)?.methods().find(|method| method.name() == name)?;
        Some(Route {
            method: format!("/{service}/{name}"),
            input: method.input(),
            output: method.output(),
            takes_many: method.is_client_streaming(),
            gives_many: method.is_server_streaming(),
        })
    };
    ROUTES.iter().filter_map(|(path, method)| Some((*path, route(method)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_has_a_method_and_every_method_of_etcd_a_route() {
        assert_eq!(table().len(), ROUTES.len());
        let pool = DescriptorPool::decode(proto::DESCRIPTORS).unwrap();
        for service in pool.services() {
            for method in service.methods() {
                let name = format!("{}/{}", service.full_name(), method.name());
                // From a later etcd, and only over gRPC.
                if name == "etcdserverpb.KV/RangeStream" {
                    continue;
                }
                assert!(ROUTES.iter().any(|(_, method)| *method == name), "{name}");
            }
        }
    }

    #[test]
    fn old_prefixes_stand_for_the_same_methods() {
        assert_eq!(find("/v3/kv/put").unwrap().method, "/etcdserverpb.KV/Put");
        assert_eq!(find("/v3beta/kv/put").unwrap().method, "/etcdserverpb.KV/Put");
        for path in ["/v3/kv/put/", "/v3/", "/v3alpha/kv/put", "/v3/etcdserverpb.KV/Put"] {
            assert!(find(path).is_none(), "{path}");
        }
        assert!(takes("/v3/none") && takes("/v3beta/") && !takes("/v3") && !takes("/v3lockpb.Lock/Lock"));
    }
}
