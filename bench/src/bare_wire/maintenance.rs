//! The Maintenance service, of which clients need only the status.

use gitcd::proto::etcdserverpb::maintenance_server::Maintenance;
use gitcd::proto::etcdserverpb::{
    AlarmRequest, AlarmResponse, DefragmentRequest, DefragmentResponse, DowngradeRequest, DowngradeResponse,
    HashKvRequest, HashKvResponse, HashRequest, HashResponse, MoveLeaderRequest, MoveLeaderResponse, SnapshotRequest,
    SnapshotResponse, StatusRequest, StatusResponse,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::{Backend, MEMBER, header, unsupported};

#[tonic::async_trait]
impl Maintenance for Backend {
    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let header = Some(header(self.store.visible()));
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Response::new(StatusResponse { header, version, leader: MEMBER, ..StatusResponse::default() }))
    }

    async fn alarm(&self, _: Request<AlarmRequest>) -> Result<Response<AlarmResponse>, Status> {
        Err(unsupported("Alarm"))
    }

    async fn defragment(&self, _: Request<DefragmentRequest>) -> Result<Response<DefragmentResponse>, Status> {
        Err(unsupported("Defragment"))
    }

    async fn hash(&self, _: Request<HashRequest>) -> Result<Response<HashResponse>, Status> {
        Err(unsupported("Hash"))
    }

    async fn hash_kv(&self, _: Request<HashKvRequest>) -> Result<Response<HashKvResponse>, Status> {
        Err(unsupported("HashKV"))
    }

    type SnapshotStream = ReceiverStream<Result<SnapshotResponse, Status>>;

    async fn snapshot(&self, _: Request<SnapshotRequest>) -> Result<Response<Self::SnapshotStream>, Status> {
        Err(unsupported("Snapshot"))
    }

    async fn move_leader(&self, _: Request<MoveLeaderRequest>) -> Result<Response<MoveLeaderResponse>, Status> {
        Err(unsupported("MoveLeader"))
    }

    async fn downgrade(&self, _: Request<DowngradeRequest>) -> Result<Response<DowngradeResponse>, Status> {
        Err(unsupported("Downgrade"))
    }
}
