//! The unary methods.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use gitcd::api::{Backend, Limits, Member, Spooler};
use gitcd::maintenance::Maintenance;
use gitcd::proto::etcdserverpb as pb;
use gitcd::proto::etcdserverpb::kv_server::Kv;
use gitcd::proto::etcdserverpb::lease_server::Lease;
use gitcd::proto::mvccpb::KeyValue;
use gitcd::store::Store;
use prost::Message;
use tonic::{Code, Request, Response, Status};

pub(super) struct Service(Backend);

impl Service {
    pub(super) fn new(store: &Arc<Store>) -> Self {
        let member =
            Member { cluster_id: 1, member_id: 2, name: String::new(), client_urls: Vec::new(), peer_urls: Vec::new() };
        Self(Backend {
            store: store.clone(),
            member: Arc::new(member),
            limits: Limits::default(),
            progress_interval: Duration::from_hours(1),
            repository: Arc::default(),
            snapshots: Spooler::default(),
            pages: Arc::default(),
            history: None,
            maintenance: Arc::new(Maintenance::new("/nowhere".into(), None)),
        })
    }

    /// Calls one of ten methods with a decoded message; ignores a message that does not decode.
    pub(super) async fn call(&self, method: u8, message: &[u8]) {
        let backend = &self.0;
        // Messages hold slices of this, as they hold slices of a connection's buffer.
        let message = Bytes::copy_from_slice(message);
        match method {
            2 => {
                let Some(request) = decode::<pb::RangeRequest>(message) else { return };
                let response = backend.range(Request::new(request.clone())).await;
                if let Some(response) = answered(response) {
                    self.range(request, &response).await;
                }
            }
            3 => {
                let Some(request) = decode(message) else { return };
                let _ = answered(backend.delete_range(Request::new(request)).await);
            }
            4 => {
                let Some(request) = decode::<pb::TxnRequest>(message) else { return };
                let branches = (request.success.len(), request.failure.len());
                if let Some(response) = answered(backend.txn(Request::new(request)).await) {
                    let taken = if response.succeeded { branches.0 } else { branches.1 };
                    assert_eq!(response.responses.len(), taken);
                }
            }
            5 => {
                let Some(request) = decode(message) else { return };
                let _ = answered(backend.compact(Request::new(request)).await);
            }
            6 => {
                let Some(request) = decode(message) else { return };
                let _ = answered(backend.lease_grant(Request::new(request)).await);
            }
            7 => {
                let Some(request) = decode(message) else { return };
                let _ = answered(backend.lease_revoke(Request::new(request)).await);
            }
            8 => {
                let Some(request) = decode::<pb::LeaseKeepAliveRequest>(message) else { return };
                assert!(backend.store.keep_alive(request.id).await.is_ok());
            }
            9 => {
                let Some(request) = decode(message) else { return };
                let _ = answered(backend.lease_time_to_live(Request::new(request)).await);
            }
            _ => {
                let Some(request) = decode::<pb::PutRequest>(message) else { return };
                self.put(request).await;
            }
        }
    }

    /// Checks that a put stores the pair, based on the previous one.
    async fn put(&self, request: pb::PutRequest) {
        let before = self.pair(request.key.clone()).await;
        let Some(response) = answered(self.0.put(Request::new(request.clone())).await) else { return };
        let revision = response.header.expect("the response has a header").revision;
        assert_eq!(response.prev_kv, before.clone().filter(|_| request.prev_kv));
        let before = before.unwrap_or_else(|| KeyValue { create_revision: revision, ..KeyValue::default() });
        let expected = KeyValue {
            key: request.key.clone(),
            create_revision: before.create_revision,
            mod_revision: revision,
            version: before.version + 1,
            value: if request.ignore_value { before.value } else { request.value },
            lease: if request.ignore_lease { before.lease } else { request.lease },
        };
        assert_eq!(self.pair(request.key).await, Some(expected));
    }

    async fn pair(&self, key: Bytes) -> Option<KeyValue> {
        let range = pb::RangeRequest { key, ..pb::RangeRequest::default() };
        let mut found = answered(self.0.range(Request::new(range)).await)?.kvs;
        assert!(found.len() <= 1);
        found.pop()
    }

    /// Checks that a response matches its request, and that the streamed response is the same.
    async fn range(&self, request: pb::RangeRequest, response: &pb::RangeResponse) {
        let pairs = &response.kvs;
        assert!(response.count >= pairs.len() as i64);
        assert!(request.limit <= 0 || pairs.len() as i64 <= request.limit);
        assert!(!request.count_only || pairs.is_empty());
        assert!(!request.keys_only || pairs.iter().all(|pair| pair.value.is_empty()));
        if request.sort_target != 0 {
            // The stream ignores a target without an order, and refuses others.
            return;
        }
        let Some(stream) = answered(self.0.range_stream(Request::new(request)).await) else { return };
        let parts: Vec<_> = stream.map(|part| part.expect("the whole was answered").range_response).collect().await;
        let streamed = parts.into_iter().flatten().flat_map(|part| part.kvs);
        assert!(streamed.eq(pairs.iter().cloned()));
    }
}

fn decode<T: Message + Default>(message: Bytes) -> Option<T> {
    T::decode(message).ok()
}

/// A refusal is fine unless it blames the server.
fn answered<T>(answer: Result<Response<T>, Status>) -> Option<T> {
    match answer {
        Ok(response) => Some(response.into_inner()),
        Err(status) => {
            let blames = matches!(status.code(), Code::Internal | Code::DataLoss | Code::Aborted | Code::Cancelled);
            assert!(!blames, "{status:?}");
            None
        }
    }
}
