//! The Lock service (etcd: `api/v3lock`): a lock is held until it is unlocked or its lease expires.

use tonic::{Request, Response, Status};

use super::concurrency::{Caller, GiveUp};
use super::{Backend, status};
use crate::proto::v3lockpb as pb;
use crate::proto::v3lockpb::lock_server::Lock;

#[tonic::async_trait]
impl Lock for Backend {
    async fn lock(&self, request: Request<pb::LockRequest>) -> Result<Response<pb::LockResponse>, Status> {
        let caller = Caller::of(self, &request);
        let request = request.into_inner();
        let place = caller.enter(&request.name, request.lease, bytes::Bytes::new()).await?;
        let give_up = GiveUp::unless_kept(&caller, &place);
        let mut revision = place.seen;
        if caller.reach_head(&place).await? {
            let (at, there) = caller.still_there(&place)?;
            if !there {
                return Err(status::session_expired());
            }
            revision = at;
        }
        give_up.keep();
        Ok(Response::new(pb::LockResponse { header: Some(self.header(revision)), key: place.key }))
    }

    async fn unlock(&self, request: Request<pb::UnlockRequest>) -> Result<Response<pb::UnlockResponse>, Status> {
        let caller = Caller::of(self, &request);
        let header = caller.delete(request.into_inner().key).await?;
        Ok(Response::new(pb::UnlockResponse { header }))
    }
}
