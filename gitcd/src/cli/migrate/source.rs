//! A client of the etcd that is copied.

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
    SnapshotResponse, StatusRequest, StatusResponse, WatchCreateRequest, WatchRequest, WatchResponse,
};
use gitcd_server::proto::mvccpb::KeyValue;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::cli::progress::Progress;

/// Responses may be as large as etcd sends them: the events of one revision are never divided.
const MAX_MESSAGE_BYTES: usize = i32::MAX as usize;
/// How long one endpoint may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// A connection on which nothing arrives for this long after a ping is closed.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Number of key-value pairs that are read at once.
const PAGE: i64 = 1000;
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
pub(super) struct Source {
    /// The endpoint that responded.
    pub(super) url: String,
    channel: Channel,
}

/// The state of a server that can be reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) cluster_id: u64,
    pub(super) member_id: u64,
    pub(super) revision: i64,
}

impl Source {
    /// Connects to the first endpoint that responds.
    ///
    /// # Errors
    /// Why each of the endpoints cannot be used.
    pub(super) async fn connect(flags: &Flags) -> anyhow::Result<Self> {
        let mut problems = Vec::new();
        for url in &flags.endpoints {
            match Self::connect_to(url, flags).await {
                Ok(source) => return Ok(source),
                Err(error) => problems.push(format!("{url}: {error:#}")),
            }
        }
        bail!("cannot connect to etcd at {}", problems.join("; "))
    }

    async fn connect_to(url: &str, flags: &Flags) -> anyhow::Result<Self> {
        let mut endpoint = Endpoint::from_shared(url.to_owned())?
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE);
        if url.starts_with("https://") {
            endpoint = endpoint.tls_config(tls(flags)?)?;
        }
        let source = Self { url: url.to_owned(), channel: endpoint.connect().await? };
        source.status().await?;
        Ok(source)
    }

    async fn status(&self) -> anyhow::Result<StatusResponse> {
        Ok(MaintenanceClient::new(self.channel.clone()).status(StatusRequest {}).await?.into_inner())
    }

    /// Returns the newest revision of the cluster: all writes that were acknowledged before the call are in it.
    ///
    /// # Errors
    /// Those of the server.
    pub(super) async fn newest(&self) -> anyhow::Result<Seen> {
        let all =
            RangeRequest { key: FIRST.into(), range_end: FIRST.into(), count_only: true, ..RangeRequest::default() };
        let header = self.range(all).await?.header.context("a response of etcd has no header")?;
        Ok(Seen { cluster_id: header.cluster_id, member_id: header.member_id, revision: header.revision })
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
        let mut key = Bytes::from_static(FIRST);
        loop {
            let page = RangeRequest { key, range_end: FIRST.into(), limit: PAGE, revision, ..RangeRequest::default() };
            let page = self.range(page).await?;
            page.kvs.iter().for_each(&mut visit);
            match page.kvs.last() {
                // The smallest key after the last one.
                Some(last) if page.more => key = [&last.key[..], b"\0"].concat().into(),
                _ => return Ok(()),
            }
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
        let options = options.write(true).create(true).truncate(true).mode(gitcd_core::durable::PRIVATE_FILE);
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
    pub(super) async fn watch(&self, start_revision: i64) -> anyhow::Result<Changes> {
        let all = WatchCreateRequest {
            key: FIRST.into(),
            range_end: FIRST.into(),
            start_revision,
            ..WatchCreateRequest::default()
        };
        let (requests, receiver) = mpsc::channel(1);
        requests.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(all)) }).await?;
        let mut client = WatchClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let responses = client.watch(ReceiverStream::new(receiver)).await?.into_inner();
        Ok(Changes { responses, _requests: requests })
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

    /// Makes etcd refuse all writes, or accept them again. The alarm CORRUPT is the only one that refuses deletions and lease
    /// requests, too; reads and watches go on. It outlives restarts of etcd.
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

/// The changes of all keys.
#[derive(Debug)]
pub(super) struct Changes {
    responses: Streaming<WatchResponse>,
    /// The watch ends with it.
    _requests: mpsc::Sender<WatchRequest>,
}

impl Changes {
    /// Waits for the next changes: one or more whole revisions.
    ///
    /// # Errors
    /// Those of the server; the history is compacted.
    pub(super) async fn next(&mut self) -> anyhow::Result<WatchResponse> {
        let Some(response) = self.responses.message().await? else { bail!("etcd ended the watch") };
        if response.compact_revision > 0 {
            return Err(Compacted(response.compact_revision).into());
        }
        if response.canceled {
            bail!("etcd cancelled the watch: {}", response.cancel_reason);
        }
        Ok(response)
    }
}

/// Changes that are still to be copied were compacted.
#[derive(Debug, thiserror::Error)]
#[error("etcd has compacted its history up to revision {0}, and changes before that were not copied yet")]
pub(super) struct Compacted(i64);

fn tls(flags: &Flags) -> anyhow::Result<ClientTlsConfig> {
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let cacert = flags.cacert.as_ref().context("https needs the CA of the server's certificate: give --cacert")?;
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(cacert)?));
    Ok(match (&flags.cert, &flags.key) {
        (Some(cert), Some(key)) => config.identity(Identity::from_pem(read(cert)?, read(key)?)),
        _ => config,
    })
}
