//! How a server presents itself as a member of an etcd cluster.

/// The etcd version that the server reports and behaves like.
pub const ETCD_VERSION: &str = "3.6.16";
/// The cluster version that the server reports: the minor version of [`ETCD_VERSION`].
pub const CLUSTER_VERSION: &str = "3.6.0";
/// Raft term of a single member that has won exactly one election.
pub(crate) const RAFT_TERM: u64 = 2;
/// A branch's server as a cluster member.
#[derive(Clone, Debug)]
pub struct Member {
    /// The cluster's id.
    pub cluster_id: u64,
    /// The member's id.
    pub member_id: u64,
    /// The branch's name.
    pub name: String,
    /// Its client URLs.
    pub client_urls: Vec<String>,
    /// Its peer URLs. There are no other members, so it does not listen there.
    pub peer_urls: Vec<String>,
}
