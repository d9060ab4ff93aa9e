//! `gitcd serve`.

mod audit;
mod etcd;
mod lease;
mod past;

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use futures::stream::{FuturesUnordered, StreamExt as _};
use gitcd_core::blocking::Panicked;
use gitcd_core::supervisor::Supervisor;
use gitcd_engine::committer::Granularity;
use gitcd_server::config::{DEFAULT_NAME, DEFAULT_PEER_URL, Listen, PerBranch, listen_urls, peer_urls};
use gitcd_server::gateway::Origins;
use gitcd_server::server::{Config, ServeError, Server};
use gitcd_sync::owner::Served;
use tokio::sync::watch;

use self::audit::AuditFlags;
use self::etcd::{Compaction, Tracing, Transport};
use super::certificates::{MetricsTlsFlags, TlsFlags};
use super::progress::Fetches;
use super::stop::{Outcome, Stop};
use super::{Common, boolean, duration, per_branch};
use crate::{api, committer, store, telemetry};

/// Shortest interval of progress notifications, as in etcd.
const MIN_PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
const DEFAULT_PROGRESS_INTERVAL: Duration = Duration::from_mins(10);

/// Limit of `--max-request-bytes`: lengths of the journal's batches and of gRPC's messages have 32 bits.
const MAX_REQUEST_BYTES: u64 = 1 << 30;

/// Default URL of a single branch.
const DEFAULT_URL: &str = "http://127.0.0.1:2479";

/// How many revisions a commit contains.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum CommitGranularity {
    /// One while the committer keeps up, more under load.
    #[default]
    Adaptive,
    /// Always one, however far the committer falls behind.
    Revision,
    /// All that are pending.
    Batch,
}

impl From<CommitGranularity> for Granularity {
    fn from(of: CommitGranularity) -> Self {
        match of {
            CommitGranularity::Adaptive => Self::Adaptive,
            CommitGranularity::Revision => Self::Revision,
            CommitGranularity::Batch => Self::Batch,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    #[arg(
        long,
        env = "GITCD_LISTEN_URLS",
        value_name = "MAP",
        help = "URLs to listen on for clients, separated by ';' [default: http://127.0.0.1:2479 for a single branch]"
    )]
    listen_urls: Option<String>,
    #[arg(
        long,
        env = "GITCD_LISTEN_METRICS_URLS",
        value_name = "MAP",
        help = "More URLs, which serve only /status, /metrics and /health, separated by ';'. For https, with the \
                certificates of --metrics-tls-cert and related flags [default: none]"
    )]
    listen_metrics_urls: Option<String>,
    /// Client URLs to advertise, separated by ';' [default: the addresses listened on]
    #[arg(long, env = "GITCD_ADVERTISE_CLIENT_URLS", value_name = "MAP")]
    advertise_client_urls: Option<String>,
    #[arg(
        long,
        env = "GITCD_INITIAL_ADVERTISE_PEER_URLS",
        value_name = "MAP",
        help = "Peer URLs to advertise, separated by ';', although a branch has one member and does not listen \
                there [default: http://localhost:2380, as in etcd]"
    )]
    initial_advertise_peer_urls: Option<String>,
    /// Cluster ids [default: derived from the branch's name]
    #[arg(long, env = "GITCD_CLUSTER_IDS", value_name = "MAP")]
    cluster_ids: Option<String>,
    /// Member ids [default: derived from the branch's name]
    #[arg(long, env = "GITCD_MEMBER_IDS", value_name = "MAP")]
    member_ids: Option<String>,
    #[command(flatten)]
    tls: TlsFlags,
    #[command(flatten)]
    metrics_tls: MetricsTlsFlags,
    /// How many revisions a commit contains
    #[arg(long, env = "GITCD_COMMIT_GRANULARITY", value_enum, default_value_t, value_name = "HOW")]
    commit_granularity: CommitGranularity,
    /// Bytes a second for rewriting large directories; packs are written less often to stay below, but at least every minute
    #[arg(long, env = "GITCD_COMMIT_OVERHEAD_BYTES", default_value_t = 26 << 10, value_name = "BYTES")]
    commit_overhead_bytes: u64,
    /// Compact when the journal grows beyond this
    #[arg(long, env = "GITCD_MAX_JOURNAL_BYTES", default_value_t = 512 << 20, value_name = "BYTES")]
    max_journal_bytes: u64,
    /// Size of a journal segment, the unit of trimming; at most a quarter of --max-journal-bytes
    #[arg(long, env = "GITCD_JOURNAL_SEGMENT_BYTES", default_value_t = 32 << 20, value_name = "BYTES", hide = true)]
    journal_segment_bytes: u64,
    /// How long unreachable objects stay in the repository; never to keep them
    /// [default: the repository's gc.pruneExpire, which is two weeks unless it is set]
    #[arg(long, env = "GITCD_GC_PRUNE_EXPIRE", value_parser = prune_expire, value_name = "DURATION")]
    gc_prune_expire: Option<Duration>,
    /// Superseded values kept in memory; older ones are read back from the journal. Those that it no longer has stay until the
    /// next compaction, at most one for each key
    #[arg(long, env = "GITCD_MAX_OLD_VALUE_BYTES", default_value_t = 64 << 20, value_name = "BYTES")]
    max_old_value_bytes: usize,
    /// Largest write in bytes, up to 1 GiB; messages of any kind may be 512 KiB larger, as in etcd
    #[arg(
        long,
        env = "GITCD_MAX_REQUEST_BYTES",
        default_value_t = 1_572_864,
        value_parser = clap::value_parser!(u64).range(..=MAX_REQUEST_BYTES),
        value_name = "BYTES"
    )]
    max_request_bytes: u64,
    /// Most operations in a transaction
    #[arg(long, env = "GITCD_MAX_TXN_OPS", default_value_t = 128, value_name = "N")]
    max_txn_ops: usize,
    /// Size of keys and values, with their history since the compaction, at which the NOSPACE alarm is raised;
    /// 0 means etcd's default of 2 GiB, a negative number no limit. Data in Git is not counted
    #[arg(
        long,
        env = "GITCD_QUOTA_BACKEND_BYTES",
        default_value_t = 0,
        allow_negative_numbers = true,
        value_name = "BYTES"
    )]
    quota_backend_bytes: i64,
    /// How often idle watchers that asked for progress notifications get one
    #[arg(
        long,
        env = "GITCD_WATCH_PROGRESS_NOTIFY_INTERVAL",
        alias = "experimental-watch-progress-notify-interval",
        default_value = "10m",
        value_parser = duration::parse,
        value_name = "DURATION"
    )]
    watch_progress_notify_interval: Duration,
    /// Origins (http://host:port) of web pages that may send requests, separated by commas; * for all
    /// [default: none]
    #[arg(long, env = "GITCD_CORS", value_name = "ORIGINS")]
    cors: Option<String>,
    #[command(flatten)]
    past: past::PastFlags,
    #[command(flatten)]
    audit: AuditFlags,
    #[command(flatten)]
    transport: Transport,
    #[command(flatten)]
    compaction: Compaction,
    #[command(flatten)]
    tracing: Tracing,
    #[command(flatten)]
    former: Former,
    #[command(flatten)]
    pull: super::pull::Flags,
    #[command(flatten)]
    lease: lease::LeaseFlags,
    #[command(flatten)]
    host: super::host::HostFlags,
}

/// Flags of earlier releases that have no effect any more.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "the fields are the flags' names")]
struct Former {
    #[arg(long, env = "GITCD_WATCH_DISPATCH_CHANNEL_SIZE", hide = true)]
    watch_dispatch_channel_size: Option<String>,
    #[arg(long, env = "GITCD_WATCH_DISPATCH_TICKER_DURATION", hide = true)]
    watch_dispatch_ticker_duration: Option<String>,
    #[arg(long, env = "GITCD_WATCH_CANCEL_CHANNEL_SIZE", hide = true)]
    watch_cancel_channel_size: Option<String>,
}

impl Former {
    fn warn(&self) {
        let flags = [
            ("watch-dispatch-channel-size", &self.watch_dispatch_channel_size),
            ("watch-dispatch-ticker-duration", &self.watch_dispatch_ticker_duration),
            ("watch-cancel-channel-size", &self.watch_cancel_channel_size),
        ];
        for (flag, _) in flags.iter().filter(|(_, value)| value.is_some()) {
            tracing::warn!("--{flag} has no effect any more: watchers have no queues");
        }
    }
}

pub(super) fn run(args: &Args, logs: super::Logs) -> anyhow::Result<()> {
    let runtime = super::runtime()?;
    let traces = {
        let _inside = runtime.enter();
        telemetry::start(&args.tracing.settings())?
    };
    super::log(logs, traces.as_ref().map(telemetry::Traces::layer));
    args.former.warn();
    let configs = configs(args)?;
    args.pull.warn();
    let result = runtime.block_on(async {
        let result = Box::pin(serve(configs, &args.host)).await;
        if let Some(traces) = traces {
            traces.end().await;
        }
        result
    });
    // Everything that still runs has been asked to stop.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn serve(configs: Vec<Config>, host: &super::host::HostFlags) -> anyhow::Result<()> {
    let stop = Stop::by_signal()?;
    let first =
        configs.first().map(|config| (config.branch.repository.clone(), config.served.clone(), config.process.clone()));
    // Ports first: nothing has been done yet if one is in use.
    let host = host.bind().await?;
    let (mut servers, mut hosting, mut outcome) = (Vec::new(), None, Outcome::default());
    // Branches that wait for a lease do not delay others.
    let (waiting, now): (Vec<_>, Vec<_>) = configs.into_iter().partition(|config| config.lease.is_some());
    for config in now {
        match start(config, stop.receiver()).await {
            Ok(server) => servers.push(server),
            Err(error) if is_stopped(&error) => {}
            Err(error) => outcome.fail(error),
        }
        if stop.is_requested() || !outcome.is_ok() {
            break;
        }
    }
    let goes_on = outcome.is_ok() && !stop.is_requested();
    let waiting = waiting.into_iter().filter(|_| goes_on);
    let mut waiting: FuturesUnordered<_> = waiting.map(|config| tokio::spawn(start(config, stop.receiver()))).collect();
    // After the branches: a push must find them.
    if let (Some(host), Some((repository, served, process)), true) = (host, first, goes_on) {
        match host.start(&repository, served, process).await {
            Ok(host) => hosting = Some(host),
            Err(error) => outcome.fail(error),
        }
    }
    while outcome.is_ok() {
        let started = tokio::select! {
            biased;
            () = stop.requested() => break,
            Some(started) = waiting.next() => started.unwrap_or_else(|error| Err(panicked(error))),
            (name, by) = deposed(&servers) => {
                Err(anyhow!("branch {name:?} was taken over by another writer ({by}); start again to wait for its lease"))
            }
        };
        match started {
            Ok(server) => servers.push(server),
            Err(error) if is_stopped(&error) => {}
            Err(error) => outcome.fail(error),
        }
    }
    if !outcome.is_ok() && servers.is_empty() && waiting.is_empty() && hosting.is_none() {
        return outcome.end();
    }
    tracing::info!("stopping: finishing requests, committing");
    // Those that wait for a lease, or have just acquired one, release it.
    stop.request();
    // A server that has just started must be stopped like all others.
    while let Some(started) = waiting.next().await {
        match started.unwrap_or_else(|error| Err(panicked(error))) {
            Ok(server) => servers.push(server),
            Err(error) if is_stopped(&error) => {}
            Err(error) => outcome.fail(error),
        }
    }
    if let Some(host) = hosting {
        host.stop().await;
    }
    for Started { name, server, .. } in servers {
        if let Err(error) = server.stop().await {
            outcome.fail(anyhow::Error::from(error).context(format!("branch {name:?}")));
        }
    }
    tracing::info!("stopped");
    outcome.end()
}

/// Returns whether a start only failed because of the stop.
fn is_stopped(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ServeError::Stopped))
}

/// Returns the error for a start that panicked.
fn panicked(error: tokio::task::JoinError) -> anyhow::Error {
    Panicked::of_task("start a server", error).into()
}

/// A server that is running.
struct Started {
    /// The name of its branch.
    name: String,
    server: Server,
    _shown: Vec<Fetches>,
}

/// Starts a server, unless `stopped` before.
async fn start(config: Config, stopped: watch::Receiver<bool>) -> anyhow::Result<Started> {
    let (name, reference) = (config.branch.name.clone(), config.branch.data_reference.clone());
    let server = Server::start_unless(config, stopped).await;
    let server = server.with_context(|| format!("cannot serve branch {name:?}"))?;
    for address in server.addresses() {
        tracing::info!(branch = name, reference, %address, "serving");
    }
    let shown = Fetches::of(&server);
    Ok(Started { name, server, _shown: shown })
}

/// Waits until another writer has one of the branches. Returns the branch and the writer.
async fn deposed(servers: &[Started]) -> (String, String) {
    let waits = servers.iter().map(|started| async move { (started.name.clone(), started.server.deposed().await) });
    let mut waits: FuturesUnordered<_> = waits.collect();
    match waits.next().await {
        Some(deposed) => deposed,
        None => std::future::pending().await,
    }
}

/// Parses `never`, or a duration.
fn prune_expire(text: &str) -> Result<Duration, String> {
    if text == "never" {
        Ok(Duration::MAX)
    } else {
        duration::parse(text).map_err(|error| format!("{error}, or never"))
    }
}

/// Interprets `--watch-progress-notify-interval` as etcd does: zero is its default.
fn progress_interval(interval: Duration) -> Duration {
    if interval.is_zero() { DEFAULT_PROGRESS_INTERVAL } else { interval.max(MIN_PROGRESS_INTERVAL) }
}

/// Interprets `--quota-backend-bytes` as etcd does.
fn quota(bytes: i64) -> u64 {
    match bytes {
        0 => api::DEFAULT_QUOTA_BYTES,
        bytes => u64::try_from(bytes).unwrap_or(0),
    }
}

/// Returns the URLs of `--listen-urls` for a branch. A single branch, and the default one, have a default.
fn client_urls(listen: &PerBranch, name: &str, is_single: bool) -> anyhow::Result<Vec<Listen>> {
    Ok(match listen.of(name) {
        Some(urls) => listen_urls("listen-urls", urls)?,
        None if listen.is_empty() && (is_single || name == DEFAULT_NAME) => listen_urls("listen-urls", DEFAULT_URL)?,
        None => Vec::new(),
    })
}

/// Checks that no flag for a branch that is written is given with `--at`.
fn check_past(
    args: &Args,
    compacts: bool,
    (remotes, leases, audits): (&super::pull::Remotes, &lease::Leases, &audit::Audits),
) -> anyhow::Result<()> {
    args.past.check(&[
        ("remote-names", !remotes.names().is_empty()),
        ("writer-lease", leases.is_given()),
        ("listen-audit-urls", !audits.urls().is_empty()),
        ("audit-log-file", !audits.log_files().is_empty()),
        ("auto-compaction-retention", compacts),
        ("host-listen-urls", args.host.is_given()),
        ("history=git", args.past.reads_git()),
    ])
}

fn configs(args: &Args) -> anyhow::Result<Vec<Config>> {
    let branches = args.common.branches()?;
    let listen = per_branch("listen-urls", args.listen_urls.as_deref())?;
    let listen_pages = per_branch("listen-metrics-urls", args.listen_metrics_urls.as_deref())?;
    let advertise = per_branch("advertise-client-urls", args.advertise_client_urls.as_deref())?;
    let peers = per_branch("initial-advertise-peer-urls", args.initial_advertise_peer_urls.as_deref())?;
    let clusters = per_branch("cluster-ids", args.cluster_ids.as_deref())?;
    let members = per_branch("member-ids", args.member_ids.as_deref())?;
    let (files, files_of_pages) = (args.tls.read()?, args.metrics_tls.read()?);
    let (remotes, leases, audits) = (args.pull.read()?, args.lease.read()?, args.audit.read()?);
    let maps = [
        &listen,
        &listen_pages,
        &advertise,
        &peers,
        &clusters,
        &members,
        &files.certs,
        &files.keys,
        &files.authorities,
        &files_of_pages.certs,
        &files_of_pages.keys,
        &files_of_pages.authorities,
        remotes.names(),
        leases.names(),
        audits.urls(),
        audits.log_files(),
    ];
    let names = branches.names(&maps);
    branches.check(&names)?;
    let retention = args.compaction.retention()?;
    check_past(args, retention.is_some(), (&remotes, &leases, &audits))?;
    let (served, process) = (Served::default(), Supervisor::default());
    let mut configs = Vec::new();
    for name in &names {
        let urls = client_urls(&listen, name, names.len() == 1)?;
        if urls.is_empty() {
            let by = if remotes.names().of(name).is_some() { ", which --remote-names names," } else { "" };
            bail!("branch {name:?}{by} has no URL in --listen-urls");
        }
        let tls = files.of_branch(name)?;
        let pages = listen_urls("listen-metrics-urls", listen_pages.of(name).unwrap_or_default())?;
        if tls.is_none() && urls.iter().any(|url| url.tls) {
            bail!("branch {name:?} has an https URL in --listen-urls; that needs --tls-cert and --tls-key");
        }
        let audit = audits.of(name, tls.as_ref(), remotes.names().of(name).is_some())?;
        let mut pull = remotes.of(name)?;
        let branch = branches.branch(name);
        let lease = leases.of(name, &branch.repository, &remotes, &mut pull)?;
        configs.push(Config {
            branch,
            listen: urls,
            listen_pages: pages,
            advertise: advertise
                .of(name)
                .unwrap_or_default()
                .split(';')
                .filter(|url| !url.is_empty())
                .map(ToOwned::to_owned)
                .collect(),
            advertise_peer: peer_urls(peers.of(name).unwrap_or(DEFAULT_PEER_URL))?,
            cluster_id: clusters.number("cluster-ids", name)?,
            member_id: members.number("member-ids", name)?,
            limits: api::Limits {
                max_request_bytes: usize::try_from(args.max_request_bytes)?,
                max_txn_ops: args.max_txn_ops,
                quota_backend_bytes: quota(args.quota_backend_bytes),
            },
            journal_segment_bytes: args.journal_segment_bytes.min(args.max_journal_bytes / 4),
            prune_expire: args.gc_prune_expire,
            store: store::Limits {
                old_value_bytes: args.max_old_value_bytes,
                max_journal_bytes: args.max_journal_bytes.saturating_mul(2),
                ..store::Limits::default()
            },
            committer: committer::Settings {
                granularity: args.commit_granularity.into(),
                overhead_bytes_per_second: args.commit_overhead_bytes,
                max_journal_bytes: args.max_journal_bytes,
                flush_interval: pull.interval.map(|_| super::pull::FLUSH_INTERVAL),
                audit: None,
            },
            audit,
            progress_interval: progress_interval(args.watch_progress_notify_interval),
            retention,
            transport: args.transport.settings()?,
            origins: Origins::parse(args.cors.as_deref().unwrap_or_default()),
            pages_tls: files_of_pages.of_branch(name)?.or_else(|| tls.clone()),
            tls,
            pull,
            lease,
            past: args.past.moment(branches.prefixes.of(name).is_none()),
            reads_git: args.past.reads_git(),
            imports: false,
            served: served.clone(),
            process: process.clone(),
        });
    }
    Ok(configs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_leads_to_may_stay_for_ever() {
        assert_eq!(prune_expire("never"), Ok(Duration::MAX));
        assert_eq!(prune_expire("336h"), Ok(Duration::from_hours(14 * 24)));
        assert!(prune_expire("two weeks").unwrap_err().contains("never"));
    }

    #[test]
    fn a_progress_interval_of_zero_is_the_default_and_a_tiny_one_the_least() {
        assert_eq!(progress_interval(Duration::ZERO), Duration::from_mins(10));
        assert_eq!(progress_interval(Duration::from_millis(1)), Duration::from_millis(100));
        assert_eq!(progress_interval(Duration::from_secs(7)), Duration::from_secs(7));
    }
}
