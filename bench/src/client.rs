//! The client for both servers: tonic with gitcd's generated types.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use gitcd::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use gitcd::proto::etcdserverpb::kv_client::KvClient;
use gitcd::proto::etcdserverpb::maintenance_client::MaintenanceClient;
use gitcd::proto::etcdserverpb::request_op::Request as Op;
use gitcd::proto::etcdserverpb::watch_client::WatchClient;
use gitcd::proto::etcdserverpb::{
    Compare, DefragmentRequest, PutRequest, RangeRequest, RequestOp, ResponseHeader, StatusRequest, StatusResponse,
    TxnRequest,
};
use tonic::transport::{Channel, Endpoint};

use crate::data::KeySpace;

/// HTTP/2 window of a stream and of a connection. With the default of 64 KiB, a list of 10,000 keys (7 MB) would measure round
/// trips instead of servers.
const WINDOW_BYTES: u32 = 1 << 20;

/// Several HTTP/2 connections to one server, shared by all clients of a workload.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    connections: Vec<Channel>,
}

impl Client {
    /// Opens all connections.
    pub(crate) async fn connect(url: &str, connections: usize) -> Result<Self> {
        ensure!(connections > 0, "requires at least one connection");
        let endpoint = Endpoint::from_shared(url.to_owned())?
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .tcp_nodelay(true);
        let connections = try_join_all((0..connections).map(|_| endpoint.connect()))
            .await
            .with_context(|| format!("cannot connect to {url}"))?;
        Ok(Self { connections })
    }

    /// The connection of a client; clients are assigned round-robin, as in etcd's own benchmark.
    fn connection(&self, client: usize) -> Channel {
        self.connections[client % self.connections.len()].clone()
    }

    /// The key-value service, for the client with this number.
    pub(crate) fn kv(&self, client: usize) -> KvClient<Channel> {
        KvClient::new(self.connection(client)).max_decoding_message_size(usize::MAX)
    }

    /// The watch service, for the client with this number.
    pub(crate) fn watch(&self, client: usize) -> WatchClient<Channel> {
        WatchClient::new(self.connection(client)).max_decoding_message_size(usize::MAX)
    }

    /// The server's status.
    pub(crate) async fn status(&self) -> Result<StatusResponse> {
        let mut maintenance = MaintenanceClient::new(self.connection(0));
        let answer = maintenance.status(StatusRequest::default()).await?;
        Ok(answer.into_inner())
    }

    /// Requests what `etcdctl defrag` does.
    pub(crate) async fn defragment(&self) -> Result<()> {
        MaintenanceClient::new(self.connection(0)).defragment(DefragmentRequest::default()).await?;
        Ok(())
    }

    /// Number of keys in a space.
    pub(crate) async fn count(&self, space: KeySpace) -> Result<u64> {
        let request = RangeRequest {
            key: space.prefix().into(),
            range_end: space.end(),
            count_only: true,
            ..RangeRequest::default()
        };
        let answer = self.kv(0).range(request).await?;
        Ok(u64::try_from(answer.into_inner().count)?)
    }

    /// The current revision.
    pub(crate) async fn revision(&self) -> Result<i64> {
        let answer = self.kv(0).range(get(Bytes::from_static(b"/"))).await?;
        Ok(revision_in(answer.into_inner().header.as_ref()))
    }
}

/// The revision in a response's header; without one 0, which no store has.
pub(crate) fn revision_in(header: Option<&ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}

/// A plain put.
pub(crate) fn put(key: Bytes, value: Bytes) -> PutRequest {
    PutRequest { key, value, ..PutRequest::default() }
}

/// kube-apiserver's get.
pub(crate) fn get(key: Bytes) -> RangeRequest {
    RangeRequest { key, limit: 1, ..RangeRequest::default() }
}

/// kube-apiserver's create: put if the key does not exist.
pub(crate) fn create(key: Bytes, value: Bytes) -> TxnRequest {
    TxnRequest {
        compare: vec![unchanged(key.clone(), 0)],
        success: vec![op(Op::RequestPut(put(key, value)))],
        failure: Vec::new(),
    }
}

/// kube-apiserver's update: put if the key is still at this revision, otherwise read it.
pub(crate) fn update(key: Bytes, mod_revision: i64, value: Bytes) -> TxnRequest {
    TxnRequest {
        compare: vec![unchanged(key.clone(), mod_revision)],
        success: vec![op(Op::RequestPut(put(key.clone(), value)))],
        failure: vec![op(Op::RequestRange(get(key)))],
    }
}

fn unchanged(key: Bytes, mod_revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key,
        target_union: Some(TargetUnion::ModRevision(mod_revision)),
        ..Compare::default()
    }
}

/// Compares a key's version (0: it does not exist).
pub(crate) fn at_version(key: Bytes, version: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Version.into(),
        key,
        target_union: Some(TargetUnion::Version(version)),
        ..Compare::default()
    }
}

/// One operation of a transaction.
pub(crate) fn op(request: Op) -> RequestOp {
    RequestOp { request: Some(request) }
}
