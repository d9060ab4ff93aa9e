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
    async fn member_add(&self, _: Request<pb::MemberAddRequest>) -> Result<Response<pb::MemberAddResponse>, Status> {
        Err(status::single_member())
    }

    async fn member_remove(
        &self,
        _: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        Err(status::single_member())
    }

    async fn member_update(
        &self,
        _: Request<pb::MemberUpdateRequest>,
    ) -> Result<Response<pb::MemberUpdateResponse>, Status> {
        Err(status::single_member())
    }

    async fn member_list(&self, _: Request<pb::MemberListRequest>) -> Result<Response<pb::MemberListResponse>, Status> {
        let member = pb::Member {
            id: self.member.member_id,
            name: self.member.name.clone(),
            peer_ur_ls: Vec::new(),
            client_ur_ls: self.member.client_urls.clone(),
            is_learner: false,
        };
        // The members have no revision of the keys, says etcd.
        let header = Some(self.header_base());
        Ok(Response::new(pb::MemberListResponse { header, members: vec![member] }))
    }

    async fn member_promote(
        &self,
        _: Request<pb::MemberPromoteRequest>,
    ) -> Result<Response<pb::MemberPromoteResponse>, Status> {
        Err(status::single_member())
    }
}
