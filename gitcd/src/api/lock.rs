//! The Lock service (etcd: `api/v3lock`): a lock is held until it is unlocked or its lease ends.

use tonic::{Request, Response, Status};

use super::concurrency::{self, GiveUp};
use super::{Backend, status};
use crate::proto::v3lockpb as pb;
use crate::proto::v3lockpb::lock_server::Lock;
use crate::store::index::KeyRange;
use crate::store::txn::{Delete, Op};

#[tonic::async_trait]
impl Lock for Backend {
    async fn lock(&self, request: Request<pb::LockRequest>) -> Result<Response<pb::LockResponse>, Status> {
        let request = request.into_inner();
        let place = concurrency::enter(&self.store, &request.name, request.lease, bytes::Bytes::new()).await?;
        let give_up = GiveUp::unless_kept(&self.store, &place);
        let mut revision = place.seen;
        if concurrency::reach_head(&self.store, &place).await? {
            let (at, there) = concurrency::still_there(&self.store, &place)?;
            if !there {
                return Err(status::session_expired());
            }
            revision = at;
        }
        give_up.keep();
        Ok(Response::new(pb::LockResponse { header: Some(self.header(revision)), key: place.key }))
    }

    async fn unlock(&self, request: Request<pb::UnlockRequest>) -> Result<Response<pb::UnlockResponse>, Status> {
        let key = request.into_inner().key;
        concurrency::check(&key)?;
        let delete = Delete { keys: KeyRange::One(key), previous: false };
        let done = self.store.execute(Op::Delete(delete), None).await.map_err(status::from_inner_client)?;
        Ok(Response::new(pb::UnlockResponse { header: Some(self.header(done.revision())) }))
    }
}
