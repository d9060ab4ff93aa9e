//! The Cluster service, with a single, permanent member.

use tonic::{Request, Response, Status};

use super::{Backend, status};
use crate::config::is_peer_url;
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::cluster_server::Cluster;

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
            peer_ur_ls: self.member.peer_urls.clone(),
            client_ur_ls: self.member.client_urls.clone(),
            is_learner: false,
        };
        // As in etcd, this header has no revision.
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
