//! The KV service.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use gitcd_core::revision::Revision;
use gitcd_mvcc::query::Found;
use gitcd_mvcc::txn::{Done, Op};
use gitcd_mvcc::version::{ValueLost, Version};
use gitcd_net::listener::Peer;
use prost::Message as _;
use tonic::{Request, Response, Status};

use super::range_stream::RangePages;
use super::{Backend, check, key_value, quota, status};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::kv_server::Kv;
use crate::proto::etcdserverpb::response_op::Response as Answer;
use crate::proto::mvccpb::KeyValue;

#[tonic::async_trait]
impl Kv for Backend {
    /// Answers requests that the dispatcher's fast path does not.
    async fn range(&self, request: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        let request = request.into_inner();
        let keys_only = request.keys_only;
        let found = self.find_anywhere(request).await?;
        Ok(Response::new(self.range_response(&found, keys_only, true)?))
    }

    type RangeStreamStream = Pin<Box<dyn Stream<Item = Result<pb::RangeStreamResponse, Status>> + Send>>;

    async fn range_stream(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        let (first, rest) = RangePages::start(self.clone(), request.into_inner()).await?;
        Ok(Response::new(Box::pin(stream::iter([Ok(first)]).chain(rest))))
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        let client = client(&request);
        let request = request.into_inner();
        let size = request.encoded_len();
        let put = Op::Put(check::put(request)?);
        check::size(size, self.limits)?;
        self.admit(quota::cost(&put))?;
        let done = self.store.execute(put, client).await.map_err(status::from_store)?;
        let Done::Put { revision, previous } = done else { unreachable!("a put is answered as one") };
        let mut response = self.put_response(revision, previous)?;
        response.header = Some(self.header(revision));
        Ok(Response::new(response))
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        let client = client(&request);
        self.delete(request.into_inner(), client).await.map(Response::new)
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        let client = client(&request);
        self.transact(request.into_inner(), client).await.map(Response::new)
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        let revision = Revision::new(request.into_inner().revision);
        self.intact()?;
        let current = self.store.compact(revision).await.map_err(status::from_store)?;
        Ok(Response::new(pb::CompactionResponse { header: Some(self.header(current)) }))
    }
}

/// Which ranges of a transaction request keys without values; the store does not need to know.
struct KeysOnly {
    success: Vec<KeysOnlyOp>,
    failure: Vec<KeysOnlyOp>,
}

enum KeysOnlyOp {
    Plain(bool),
    Txn(KeysOnly),
}

impl KeysOnly {
    fn of(request: &pb::TxnRequest) -> Self {
        let branch = |ops: &[pb::RequestOp]| ops.iter().map(KeysOnlyOp::of).collect();
        Self { success: branch(&request.success), failure: branch(&request.failure) }
    }
}

impl KeysOnlyOp {
    fn of(op: &pb::RequestOp) -> Self {
        match &op.request {
            Some(pb::request_op::Request::RequestRange(range)) => Self::Plain(range.keys_only),
            Some(pb::request_op::Request::RequestTxn(txn)) => Self::Txn(KeysOnly::of(txn)),
            _ => Self::Plain(false),
        }
    }
}

impl Backend {
    /// Deletes keys for a client, or for a service that is a client in etcd.
    pub(super) async fn delete(
        &self,
        request: pb::DeleteRangeRequest,
        client: Option<Arc<str>>,
    ) -> Result<pb::DeleteRangeResponse, Status> {
        let size = request.encoded_len();
        let delete = check::delete(request)?;
        check::size(size, self.limits)?;
        self.intact()?;
        let done = self.store.execute(Op::Delete(delete), client).await.map_err(status::from_store)?;
        let Done::Delete { revision, deleted, previous } = done else { unreachable!("a deletion is answered as one") };
        let mut response = self.delete_response(revision, deleted, &previous)?;
        response.header = Some(self.header(revision));
        Ok(response)
    }

    /// Executes a transaction for a client, or for a service that is a client in etcd.
    pub(super) async fn transact(
        &self,
        request: pb::TxnRequest,
        client: Option<Arc<str>>,
    ) -> Result<pb::TxnResponse, Status> {
        let size = request.encoded_len();
        let shape = KeysOnly::of(&request);
        let txn = Op::Txn(check::txn(request, self.limits)?);
        if !txn.is_read_only() {
            // As in etcd, only the transport limits the size of reads.
            check::size(size, self.limits)?;
            self.admit(quota::cost(&txn))?;
        }
        let done = self.store.execute(txn, client).await.map_err(status::from_store)?;
        let Done::Txn(txn) = done else { unreachable!("a transaction is answered as one") };
        let header = self.header(txn.revision);
        let responses = self.responses(txn.done, txn.succeeded, &shape)?;
        Ok(pb::TxnResponse { header: Some(header), succeeded: txn.succeeded, responses })
    }

    pub(super) fn pair(&self, version: &Version) -> Result<KeyValue, Status> {
        let value = version.value(self.store.segments()).map_err(|lost: ValueLost| status::from_store(lost.into()))?;
        Ok(key_value(version, value))
    }

    fn range_response(&self, found: &Found, keys_only: bool, header: bool) -> Result<pb::RangeResponse, Status> {
        let kvs = if keys_only {
            found.pairs.iter().map(|version| key_value(version, Bytes::new())).collect()
        } else {
            found.pairs.iter().map(|version| self.pair(version)).collect::<Result<_, _>>()?
        };
        let header = if header { self.header(found.revision) } else { revision_only(found.revision) };
        Ok(pb::RangeResponse { header: Some(header), kvs, more: found.more, count: found.count as i64 })
    }

    fn put_response(&self, revision: Revision, previous: Option<Arc<Version>>) -> Result<pb::PutResponse, Status> {
        let prev_kv = previous.map(|version| self.pair(&version)).transpose()?;
        Ok(pb::PutResponse { header: Some(revision_only(revision)), prev_kv })
    }

    fn delete_response(
        &self,
        revision: Revision,
        deleted: usize,
        previous: &[Arc<Version>],
    ) -> Result<pb::DeleteRangeResponse, Status> {
        let prev_kvs = previous.iter().map(|version| self.pair(version)).collect::<Result<_, _>>()?;
        Ok(pb::DeleteRangeResponse { header: Some(revision_only(revision)), deleted: deleted as i64, prev_kvs })
    }

    fn responses(&self, done: Vec<Done>, succeeded: bool, shape: &KeysOnly) -> Result<Vec<pb::ResponseOp>, Status> {
        let shapes = if succeeded { &shape.success } else { &shape.failure };
        let answers = done.into_iter().zip(shapes).map(|(done, shape)| {
            let answer = match (done, shape) {
                (Done::Range(found), KeysOnlyOp::Plain(keys_only)) => {
                    Answer::ResponseRange(self.range_response(&found, *keys_only, false)?)
                }
                (Done::Put { revision, previous }, _) => Answer::ResponsePut(self.put_response(revision, previous)?),
                (Done::Delete { revision, deleted, previous }, _) => {
                    Answer::ResponseDeleteRange(self.delete_response(revision, deleted, &previous)?)
                }
                (Done::Txn(txn), KeysOnlyOp::Txn(shape)) => {
                    let responses = self.responses(txn.done, txn.succeeded, shape)?;
                    let header = Some(pb::ResponseHeader::default());
                    Answer::ResponseTxn(pb::TxnResponse { header, succeeded: txn.succeeded, responses })
                }
                _ => unreachable!("answers have the shape of their operations"),
            };
            Ok(pb::ResponseOp { response: Some(answer) })
        });
        answers.collect()
    }
}

/// The header of a response inside a transaction's response.
fn revision_only(revision: Revision) -> pb::ResponseHeader {
    pb::ResponseHeader { revision: revision.get(), ..pb::ResponseHeader::default() }
}

/// Returns the client for the audit log: the name in its certificate, if it has one, and its user agent.
pub(super) fn client<T>(request: &Request<T>) -> Option<Arc<str>> {
    let agent = request.metadata().get("user-agent").and_then(|agent| agent.to_str().ok());
    let name = request.extensions().get::<Peer>().and_then(|peer| peer.name.as_deref());
    match (name, agent) {
        (Some(name), Some(agent)) => Some(format!("{name} ({agent})").into()),
        (name, agent) => name.or(agent).map(Into::into),
    }
}
