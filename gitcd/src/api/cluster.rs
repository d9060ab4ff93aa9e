//! The Cluster service: one member, which stays.

use tonic::{Request, Response, Status};

use super::{Backend, status};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::cluster_server::Cluster;

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
}

#[tonic::async_trait]
impl Cluster for Backend {
    async fn member_add(
        &self,
        request: Request<pb::MemberAddRequest>,
    ) -> Result<Response<pb::MemberAddResponse>, Status> {
        let urls = request.into_inner().peer_ur_ls;
        let is_good = !urls.is_empty() && urls.iter().all(|url| is_peer_url(url));
        Err(if is_good { status::single_member() } else { status::bad_member_urls() })
    }

    async fn member_remove(
        &self,
        request: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        self.known(request.get_ref().id)?;
        // A cluster keeps its last member.
        Err(status::not_enough_started())
    }

    async fn member_update(
        &self,
        request: Request<pb::MemberUpdateRequest>,
    ) -> Result<Response<pb::MemberUpdateResponse>, Status> {
        self.known(request.get_ref().id)?;
        Err(status::single_member())
    }

    async fn member_list(&self, _: Request<pb::MemberListRequest>) -> Result<Response<pb::MemberListResponse>, Status> {
        let member = pb::Member {
            id: self.member.member_id,
            name: self.member.name.clone(),
            peer_ur_ls: self.member.peer_urls(),
            client_ur_ls: self.member.client_urls.clone(),
            is_learner: false,
        };
        // The members have no revision of the keys, says etcd.
        let header = Some(self.header_base());
        Ok(Response::new(pb::MemberListResponse { header, members: vec![member] }))
    }

    async fn member_promote(
        &self,
        request: Request<pb::MemberPromoteRequest>,
    ) -> Result<Response<pb::MemberPromoteResponse>, Status> {
        self.known(request.get_ref().id)?;
        Err(status::not_a_learner())
    }
}

impl Backend {
    fn known(&self, id: u64) -> Result<(), Status> {
        if id == self.member.member_id { Ok(()) } else { Err(status::member_not_found()) }
    }
}

/// What etcd takes for the address of a member: scheme, host and port, no path.
fn is_peer_url(url: &str) -> bool {
    let Some((scheme, authority)) = url.trim().split_once("://") else { return false };
    match scheme {
        "unix" | "unixs" => true,
        "http" | "https" => {
            let host_and_port = authority.rsplit_once(':');
            host_and_port.is_some_and(|(_, port)| !port.contains(']')) && !authority.contains('/')
        }
        _ => false,
    }
}

/// etcd's port for other members.
const PEER_PORT: u16 = 2380;

impl Member {
    /// Where other members would find it. There are none and nobody listens there, but clients expect that every
    /// member has such an address: it is the one that an etcd beside it would have by default.
    fn peer_urls(&self) -> Vec<String> {
        let on_peer_port = |url: &String| {
            let (scheme, rest) = url.split_once("://")?;
            let authority = rest.split('/').next()?;
            // A colon within brackets is a part of the host.
            let host = match authority.rsplit_once(':') {
                Some((host, port)) if !port.contains(']') => host,
                _ => authority,
            };
            Some(format!("{scheme}://{host}:{PEER_PORT}"))
        };
        self.client_urls.first().and_then(on_peer_port).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_for_peers_is_beside_the_one_for_clients() {
        let member = |client: &str| Member {
            cluster_id: 1,
            member_id: 2,
            name: "a".into(),
            client_urls: vec![client.into(), "http://other:2379".into()],
        };
        for (client, peer) in [
            ("http://127.0.0.1:2379", "http://127.0.0.1:2380"),
            ("https://etcd.example:4001/", "https://etcd.example:2380"),
            ("http://[::1]:2379", "http://[::1]:2380"),
            ("http://[::1]", "http://[::1]:2380"),
            ("http://etcd", "http://etcd:2380"),
        ] {
            assert_eq!(member(client).peer_urls(), [peer], "{client}");
        }
        assert!(member("nonsense").peer_urls().is_empty());
    }
}
