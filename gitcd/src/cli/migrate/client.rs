//! A client of the etcd that is copied.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use gitcd_server::proto::etcdserverpb::alarm_request::AlarmAction;
use gitcd_server::proto::etcdserverpb::kv_client::KvClient;
use gitcd_server::proto::etcdserverpb::lease_client::LeaseClient;
use gitcd_server::proto::etcdserverpb::maintenance_client::MaintenanceClient;
use gitcd_server::proto::etcdserverpb::watch_client::WatchClient;
use gitcd_server::proto::etcdserverpb::watch_request::RequestUnion;
use gitcd_server::proto::etcdserverpb::{
    AlarmRequest, AlarmType, LeaseLeasesRequest, LeaseTimeToLiveRequest, RangeRequest, RangeResponse, SnapshotRequest,
    SnapshotResponse, WatchCreateRequest, WatchRequest, WatchResponse,
};
use gitcd_server::proto::mvccpb::KeyValue;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::cli::progress::Progress;

/// Responses may be as large as etcd sends them: the events of one revision are never divided.
const MAX_MESSAGE_BYTES: usize = i32::MAX as usize;
/// Pause between attempts to connect.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// How long one endpoint may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// A connection on which nothing arrives for this long after a ping is closed.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Time limit for a request; for a stream, until its first message.
const DEADLINE: Duration = Duration::from_secs(30);
/// Least and most key-value pairs of a page; the first page has the least.
const PAGES: RangeInclusive<i64> = 100..=20_000;
/// About as many bytes are read at once.
const PAGE_BYTES: usize = 8 << 20;
/// All keys: from the empty one on.
const FIRST: &[u8] = b"\0";

/// The flags that name an etcd, with the names that `etcdctl` has for them.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// Client URLs of the server, separated by commas; the first that responds is used
    #[arg(
        long,
        env = "GITCD_ENDPOINTS",
        value_name = "URLS",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:2379"
    )]
    endpoints: Vec<String>,
    /// CA of the server's certificate, for https
    #[arg(long, env = "GITCD_CACERT", value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Client certificate
    #[arg(long, env = "GITCD_CERT", value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Key of the client certificate
    #[arg(long, env = "GITCD_KEY", value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

/// A connection to a server of etcd's API.
#[derive(Clone, Debug)]
pub(super) struct EtcdClient {
    /// The endpoint that responded.
    pub(super) url: String,
    channel: Channel,
}

/// The state of a server that can be reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClusterState {
    pub(super) cluster_id: u64,
    pub(super) member_id: u64,
    pub(super) revision: i64,
}

impl EtcdClient {
    /// Connects to the first endpoint that responds.
    ///
    /// # Errors
    /// Why each of the endpoints cannot be used.
    pub(super) async fn connect(flags: &Flags) -> anyhow::Result<Self> {
        let mut problems = Vec::new();
        for url in &flags.endpoints {
            match Self::connect_to(url, flags).await {
                Ok(client) => return Ok(client),
                Err(error) => problems.push(format!("{url}: {error:#}")),
            }
        }
        bail!("cannot connect to etcd at {}", problems.join("; "))
    }

    async fn connect_to(url: &str, flags: &Flags) -> anyhow::Result<Self> {
        let mut endpoint = Endpoint::from_shared(url.to_owned())?
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .timeout(DEADLINE);
        if url.starts_with("https://") {
            endpoint = endpoint.tls_config(tls(flags)?)?;
        }
        let client = Self { url: url.to_owned(), channel: endpoint.connect().await? };
        // A learner does not answer this.
        client.newest().await?;
        Ok(client)
    }

    /// Returns the newest revision of the cluster: all writes that were acknowledged before the call are in it.
    ///
    /// # Errors
    /// Those of the server.
    pub(super) async fn newest(&self) -> anyhow::Result<ClusterState> {
        // One key: etcd would count those of a range.
        let one = RangeRequest { key: FIRST.into(), ..RangeRequest::default() };
        let header = self.range(one).await?.header.context("a response of etcd has no header")?;
        Ok(ClusterState { cluster_id: header.cluster_id, member_id: header.member_id, revision: header.revision })
    }

    async fn range(&self, request: RangeRequest) -> anyhow::Result<RangeResponse> {
        let mut client = KvClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        Ok(client.range(request).await?.into_inner())
    }

    /// Calls `visit` with all key-value pairs at a revision, in key order.
    ///
    /// # Errors
    /// Those of the server, for example if the revision is compacted meanwhile.
    pub(super) async fn each(&self, revision: i64, mut visit: impl FnMut(&KeyValue)) -> anyhow::Result<()> {
        let (mut key, mut limit) = (Bytes::from_static(FIRST), *PAGES.start());
        loop {
            let page = RangeRequest { key, range_end: FIRST.into(), limit, revision, ..RangeRequest::default() };
            let page = self.range(page).await?;
            page.kvs.iter().for_each(&mut visit);
            let Some(last) = page.kvs.last().filter(|_| page.more) else { return Ok(()) };
            // The smallest key after the last one.
            key = [&last.key[..], b"\0"].concat().into();
            // etcd counts all keys for each page, so pages are as large as their values allow.
            let bytes: usize = page.kvs.iter().map(|pair| pair.key.len() + pair.value.len() + 1).sum();
            let fitting = page.kvs.len() * PAGE_BYTES / bytes;
            limit = i64::try_from(fitting).unwrap_or(i64::MAX).clamp(*PAGES.start(), *PAGES.end());
        }
    }

    /// Saves a snapshot to a file, and shows the progress.
    ///
    /// # Errors
    /// Those of the server and of the file.
    pub(super) async fn snapshot(&self, path: &Path) -> anyhow::Result<()> {
        self.save(path).await.with_context(|| format!("cannot save a snapshot of {} to {}", self.url, path.display()))
    }

    async fn save(&self, path: &Path) -> anyhow::Result<()> {
        let mut options = tokio::fs::OpenOptions::new();
        let options = options.write(true).create_new(true).mode(gitcd_core::durable::PRIVATE_FILE);
        let (mut file, mut progress, mut bytes) = (options.open(path).await?, Progress::new(), 0);
        let mut client = MaintenanceClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let mut parts = client.snapshot(SnapshotRequest {}).await?.into_inner();
        while let Some(SnapshotResponse { blob, remaining_bytes, .. }) = parts.message().await? {
            file.write_all(&blob).await?;
            bytes += blob.len() as u64;
            let share = bytes * 100 / (bytes + remaining_bytes).max(1);
            progress.show(format_args!("saving a snapshot of {}: {} MiB, {share} %", self.url, bytes >> 20));
        }
        Ok(file.flush().await?)
    }

    /// Watches all keys from a revision on.
    ///
    /// # Errors
    /// Those of the server.
    pub(super) async fn watch(&self, start_revision: i64) -> anyhow::Result<KeyWatch> {
        let all = WatchCreateRequest {
            key: FIRST.into(),
            range_end: FIRST.into(),
            start_revision,
            ..WatchCreateRequest::default()
        };
        let (requests, receiver) = mpsc::channel(1);
        requests.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(all)) }).await?;
        let mut client = WatchClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let mut request = tonic::Request::new(ReceiverStream::new(receiver));
        // A member without a leader ends the watch, instead of sending nothing.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        Ok(KeyWatch { responses: client.watch(request).await?.into_inner(), _requests: requests })
    }

    /// Returns the IDs of all leases.
    ///
    /// # Errors
    /// Those of the server.
    pub(super) async fn leases(&self) -> anyhow::Result<Vec<i64>> {
        let leases = LeaseClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let listed = { leases }.lease_leases(LeaseLeasesRequest {}).await?.into_inner();
        Ok(listed.leases.into_iter().map(|lease| lease.id).collect())
    }

    /// Returns the granted time to live of a lease in seconds; `None` if the lease does not exist any more.
    ///
    /// # Errors
    /// Those of the server.
    pub(super) async fn granted_ttl(&self, id: i64) -> anyhow::Result<Option<i64>> {
        let mut leases = LeaseClient::new(self.channel.clone());
        let found = leases.lease_time_to_live(LeaseTimeToLiveRequest { id, keys: false }).await?.into_inner();
        Ok((found.granted_ttl > 0).then_some(found.granted_ttl))
    }

    /// Returns the first revision after `from` and up to `to` that can be read, which is the compact revision; `from` if it can be
    /// read. Takes one request for each halving of the interval.
    ///
    /// # Errors
    /// Those of the server.
    pub(super) async fn compact_revision(&self, from: i64, to: i64) -> anyhow::Result<i64> {
        let (mut compacted, mut readable) = (from, to);
        if !self.is_compacted(from).await? {
            return Ok(from);
        }
        while readable - compacted > 1 {
            let middle = i64::midpoint(compacted, readable);
            if self.is_compacted(middle).await? { compacted = middle } else { readable = middle }
        }
        Ok(readable)
    }

    async fn is_compacted(&self, revision: i64) -> anyhow::Result<bool> {
        match self.range(RangeRequest { key: FIRST.into(), revision, ..RangeRequest::default() }).await {
            Ok(_) => Ok(false),
            Err(error) => match error.downcast_ref::<tonic::Status>() {
                Some(status) if status.code() == tonic::Code::OutOfRange => Ok(true),
                _ => Err(error),
            },
        }
    }

    /// Returns the raised alarms: the member and the kind of each.
    ///
    /// # Errors
    /// Those of the server.
    pub(super) async fn alarms(&self) -> anyhow::Result<Vec<(u64, AlarmType)>> {
        let get = AlarmRequest { action: AlarmAction::Get.into(), ..AlarmRequest::default() };
        let found = MaintenanceClient::new(self.channel.clone()).alarm(get).await?.into_inner();
        Ok(found.alarms.into_iter().map(|alarm| (alarm.member_id, alarm.alarm())).collect())
    }

    /// Makes etcd refuse all writes, or accept them again. The alarm CORRUPT is the only one that refuses deletions and lease
    /// requests, too; reads and watches continue. It remains after restarts of etcd.
    ///
    /// # Errors
    /// Those of the server.
    pub(super) async fn freeze(&self, member_id: u64, is_frozen: bool) -> anyhow::Result<()> {
        let action = if is_frozen { AlarmAction::Activate } else { AlarmAction::Deactivate };
        let alarm = AlarmRequest { action: action.into(), member_id, alarm: AlarmType::Corrupt.into() };
        MaintenanceClient::new(self.channel.clone()).alarm(alarm).await?;
        Ok(())
    }
}

/// A watch of all keys.
#[derive(Debug)]
pub(super) struct KeyWatch {
    responses: Streaming<WatchResponse>,
    /// The watch ends with it.
    _requests: mpsc::Sender<WatchRequest>,
}

impl KeyWatch {
    /// Waits for the next changes: one or more whole revisions.
    ///
    /// # Errors
    /// Those of the server; the history is compacted.
    pub(super) async fn next(&mut self) -> anyhow::Result<WatchResponse> {
        let response = self.responses.message().await?.ok_or(WatchEnded)?;
        if response.compact_revision > 0 {
            return Err(Compacted(response.compact_revision).into());
        }
        if response.canceled {
            return Err(anyhow::Error::new(WatchEnded).context(response.cancel_reason));
        }
        Ok(response)
    }
}

/// Changes that are still to be copied were compacted.
#[derive(Debug, thiserror::Error)]
#[error(
    "etcd has compacted its history up to revision {0}, and changes before that were not copied yet; remove the branch, and import \
     again (with --follow, the copy keeps up)"
)]
pub(super) struct Compacted(i64);

/// The server has ended the watch.
#[derive(Debug, thiserror::Error)]
#[error("etcd ended the watch")]
pub(super) struct WatchEnded;

/// The server does not send what it has.
#[derive(Debug, thiserror::Error)]
#[error("etcd does not send its changes")]
pub(super) struct Silent;

/// Returns whether another attempt may succeed.
pub(super) fn is_transient(error: &anyhow::Error) -> bool {
    use tonic::Code::{Aborted, Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable, Unknown};
    let is_code = |status: &tonic::Status| {
        matches!(status.code(), Aborted | Cancelled | DeadlineExceeded | ResourceExhausted | Unavailable | Unknown)
    };
    error.chain().any(|cause| {
        cause.downcast_ref().is_some_and(is_code)
            || cause.is::<tonic::transport::Error>()
            || cause.is::<WatchEnded>()
            || cause.is::<Silent>()
    })
}

fn tls(flags: &Flags) -> anyhow::Result<ClientTlsConfig> {
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let cacert = flags.cacert.as_ref().context("https needs the CA of the server's certificate: give --cacert")?;
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(cacert)?));
    Ok(match (&flags.cert, &flags.key) {
        (Some(cert), Some(key)) => config.identity(Identity::from_pem(read(cert)?, read(key)?)),
        _ => config,
    })
}
