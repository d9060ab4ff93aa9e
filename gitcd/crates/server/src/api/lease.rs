//! The Lease service.

use std::pin::Pin;
use std::time::Instant;

use futures::{Stream, StreamExt};
use gitcd_mvcc::lease::MAX_TTL;
use tonic::{Request, Response, Status, Streaming};

use super::kv::client;
use super::{Backend, quota, status};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::lease_server::Lease;

#[tonic::async_trait]
impl Lease for Backend {
    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        self.grant(request.into_inner()).await.map(Response::new)
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        self.intact()?;
        let client = client(&request);
        let revision = self.store.revoke(request.into_inner().id, client).await.map_err(status::from_store)?;
        Ok(Response::new(pb::LeaseRevokeResponse { header: Some(self.header(revision)) }))
    }

    type LeaseKeepAliveStream = Pin<Box<dyn Stream<Item = Result<pb::LeaseKeepAliveResponse, Status>> + Send>>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let backend = self.clone();
        let answers = request.into_inner().then(move |request| {
            let backend = backend.clone();
            async move {
                let id = request.map_err(status::of_message)?.id;
                // The revision first: a lease may be revoked right after, and must not look alive at that revision.
                let header = Some(backend.header(backend.store.revision()));
                // A lease that is gone is answered with a TTL of 0, not with an error.
                let ttl = backend.store.keep_alive(id).await.map_err(status::from_store)?.unwrap_or(0);
                Ok(pb::LeaseKeepAliveResponse { header, id, ttl })
            }
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        let pb::LeaseTimeToLiveRequest { id, keys } = request.into_inner();
        let header = Some(self.header(self.store.revision()));
        let lease = self.store.lease(id, keys).await.map_err(status::from_store)?;
        let Some(lease) = lease else {
            return Ok(Response::new(pb::LeaseTimeToLiveResponse {
                header,
                id,
                ttl: -1,
                granted_ttl: 0,
                keys: Vec::new(),
            }));
        };
        let ttl = lease.deadline.saturating_duration_since(Instant::now()).as_secs() as i64;
        let (granted_ttl, keys) = (lease.ttl, lease.keys);
        Ok(Response::new(pb::LeaseTimeToLiveResponse { header, id, ttl, granted_ttl, keys }))
    }

    async fn lease_leases(
        &self,
        _: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        let leases = self.store.list_leases().await.map_err(status::from_store)?;
        let leases = leases.into_iter().map(|(id, _)| pb::LeaseStatus { id }).collect();
        let header = Some(self.header(self.store.revision()));
        Ok(Response::new(pb::LeaseLeasesResponse { header, leases }))
    }
}

impl Backend {
    /// Grants a lease to a client, or to a service that is a client in etcd.
    pub(super) async fn grant(&self, request: pb::LeaseGrantRequest) -> Result<pb::LeaseGrantResponse, Status> {
        if request.ttl > MAX_TTL {
            return Err(status::lease_ttl_too_large());
        }
        self.admit(quota::LEASE_BYTES)?;
        let (id, ttl) = self.store.grant(request.id, request.ttl).await.map_err(status::from_store)?;
        let header = Some(self.header(self.store.revision()));
        Ok(pb::LeaseGrantResponse { header, id, ttl, error: String::new() })
    }
}
