//! The Election service (etcd: `api/v3election`): the oldest candidate leads until it resigns or its lease expires.

use std::pin::Pin;

use bytes::Bytes;
use futures::{Stream, stream};
use gitcd_core::revision::Revision;
use gitcd_mvcc::index::KeyRange;
use tonic::{Request, Response, Status};

use super::concurrency::{self, Caller, Changes, GiveUp};
use super::{Backend, status};
use crate::proto::v3electionpb as pb;
use crate::proto::v3electionpb::election_server::Election;

#[tonic::async_trait]
impl Election for Backend {
    async fn campaign(&self, request: Request<pb::CampaignRequest>) -> Result<Response<pb::CampaignResponse>, Status> {
        let caller = Caller::of(self, &request);
        let pb::CampaignRequest { name, lease, value } = request.into_inner();
        let place = caller.enter(&name, lease, value.clone()).await?;
        let give_up = GiveUp::unless_kept(&caller, &place);
        if place.former.as_ref().is_some_and(|former| *former != value) {
            // The same candidate with a new value.
            let said = caller.say(&place.key, place.created, place.lease, value).await;
            if let Err(refused) = said.and_then(|said| said.ok_or_else(status::not_leader)) {
                // As in etcd, the candidate has withdrawn by the time the error is sent.
                give_up.now().await;
                return Err(refused);
            }
        }
        caller.reach_head(&place).await?;
        give_up.keep();
        let header = Some(self.header(place.seen));
        let leader = pb::LeaderKey { name, key: place.key, rev: place.created.get(), lease: place.lease };
        Ok(Response::new(pb::CampaignResponse { header, leader: Some(leader) }))
    }

    async fn proclaim(&self, request: Request<pb::ProclaimRequest>) -> Result<Response<pb::ProclaimResponse>, Status> {
        let caller = Caller::of(self, &request);
        let pb::ProclaimRequest { leader, value } = request.into_inner();
        let leader = leader.ok_or_else(status::missing_leader)?;
        let created = Revision::new(leader.rev);
        let lease = caller.session(leader.lease).await?;
        let said = caller.say(&leader.key, created, lease, value).await?;
        let header = Some(self.header(said.ok_or_else(status::not_leader)?));
        Ok(Response::new(pb::ProclaimResponse { header }))
    }

    async fn leader(&self, request: Request<pb::LeaderRequest>) -> Result<Response<pb::LeaderResponse>, Status> {
        let (revision, kv) = concurrency::head(&self.store, &line(&request.into_inner().name))?;
        let kv = Some(kv.ok_or_else(status::no_leader)?);
        Ok(Response::new(pb::LeaderResponse { header: Some(self.header(revision)), kv }))
    }

    type ObserveStream = Pin<Box<dyn Stream<Item = Result<pb::LeaderResponse, Status>> + Send>>;

    /// Streams the newest value of every leader; values that are replaced before they are sent may be skipped.
    async fn observe(&self, request: Request<pb::LeaderRequest>) -> Result<Response<Self::ObserveStream>, Status> {
        let line = line(&request.into_inner().name);
        let changes = Changes::of(&self.store, line.clone());
        let backend = self.clone();
        let words = stream::try_unfold((changes, Revision::ZERO), move |(mut changes, last)| {
            let (backend, line) = (backend.clone(), line.clone());
            async move {
                loop {
                    let (revision, kv) = concurrency::head(&backend.store, &line)?;
                    if let Some(kv) = kv.filter(|kv| kv.mod_revision != last.get()) {
                        let last = Revision::new(kv.mod_revision);
                        let word = pb::LeaderResponse { header: Some(backend.header(revision)), kv: Some(kv) };
                        return Ok(Some((word, (changes, last))));
                    }
                    changes.next().await?;
                }
            }
        });
        Ok(Response::new(Box::pin(words)))
    }

    async fn resign(&self, request: Request<pb::ResignRequest>) -> Result<Response<pb::ResignResponse>, Status> {
        let caller = Caller::of(self, &request);
        let leader = request.into_inner().leader.ok_or_else(status::missing_leader)?;
        // As in etcd, a client without a lease gets one, though no key will be bound to it.
        caller.session(leader.lease).await?;
        let revision = caller.leave(&leader.key, Revision::new(leader.rev)).await?;
        Ok(Response::new(pb::ResignResponse { header: Some(self.header(revision)) }))
    }
}

fn line(name: &Bytes) -> KeyRange {
    concurrency::starting_with(&[&name[..], b"/"].concat())
}
