//! What a server reports of itself as a member of an etcd cluster.

/// The version of etcd whose behaviour is served; clients compare it with what they need.
pub const ETCD_VERSION: &str = "3.6.16";
/// The oldest version that a cluster with this member can be.
pub const CLUSTER_VERSION: &str = "3.6.0";
/// A single member has won exactly one election.
pub(crate) const RAFT_TERM: u64 = 2;
/// Who a branch's server is to its clients.
#[derive(Clone, Debug)]
pub struct Member {
    /// The cluster's id.
    pub cluster_id: u64,
    /// The member's id.
    pub member_id: u64,
    /// The branch's name.
    pub name: String,
    /// Where clients find it.
    pub client_urls: Vec<String>,
    /// Where other members would find it. There are none, and nobody listens there.
    pub peer_urls: Vec<String>,
}
