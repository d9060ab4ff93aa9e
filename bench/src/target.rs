//! A compared server with the state that workloads keep about it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::Mutex;

use crate::client::{self, Client, revision_in};
use crate::compact::Compactor;
use crate::data::KeySpace;
use crate::lag;
use crate::process::{self, Usage};
use crate::server::Server;

/// Concurrent puts where only their number matters.
pub(crate) const WRITERS: usize = 64;
/// A server is idle when it uses less than this share of one core …
const QUIET_CORE: f64 = 0.05;
/// … over this time.
const QUIET_WINDOW: Duration = Duration::from_millis(300);

/// A running server and the connections to it.
pub(crate) struct Target {
    /// The process.
    pub(crate) server: Server,
    /// The connections.
    pub(crate) client: Client,
    /// Compacts as the workloads write.
    pub(crate) compactor: Arc<Compactor>,
    /// Number of the next created key.
    pub(crate) next_new: Arc<AtomicU64>,
    filled: Mutex<HashSet<&'static str>>,
    /// Highest memory before the last reset.
    peak_memory: AtomicU64,
}

impl Target {
    /// Connects to a freshly started server.
    pub(crate) async fn connect(server: Server, connections: usize, every: i64) -> Result<Self> {
        let client = Client::connect(&server.url(), connections).await?;
        Ok(Self {
            server,
            client,
            compactor: Arc::new(Compactor::new(every)),
            next_new: Arc::new(AtomicU64::new(0)),
            filled: Mutex::new(HashSet::new()),
            peak_memory: AtomicU64::new(0),
        })
    }

    /// Makes sure that all keys of the space exist; does nothing the second time.
    pub(crate) async fn fill(&self, space: KeySpace) -> Result<()> {
        if !self.filled.lock().await.insert(space.resource.plural) {
            return Ok(());
        }
        let values = (0..space.keys).map(|number| (number, space.value(number, 1, number)));
        self.put_all(space, values).await
    }

    /// Puts all these values, by the numbers of their keys, as fast as the server accepts them.
    pub(crate) async fn put_all(&self, space: KeySpace, values: impl Iterator<Item = (u64, Bytes)>) -> Result<()> {
        stream::iter(values.enumerate())
            .map(|(client, (number, value))| {
                let mut kv = self.client.kv(client);
                async move {
                    let answer = kv.put(client::put(space.key(number), value)).await?;
                    let revision = revision_in(answer.into_inner().header.as_ref());
                    self.compactor.observe(&self.client, revision).await
                }
            })
            .buffer_unordered(WRITERS)
            .try_collect::<()>()
            .await
            .with_context(|| format!("writing to {} failed", space.prefix()))
    }

    /// The server process's usage so far.
    pub(crate) fn usage(&self) -> Result<Usage> {
        process::usage(self.server.pid())
    }

    /// Highest resident memory since [`Target::reset_peak_memory`], in bytes.
    pub(crate) fn peak_memory(&self) -> Result<u64> {
        process::peak_memory(self.server.pid())
    }

    /// Highest resident memory since the start, in bytes.
    pub(crate) fn highest_memory(&self) -> Result<u64> {
        Ok(self.peak_memory()?.max(self.peak_memory.load(Ordering::Relaxed)))
    }

    /// Resets [`Target::peak_memory`] to the memory in use now.
    pub(crate) fn reset_peak_memory(&self) -> Result<()> {
        self.peak_memory.fetch_max(self.peak_memory()?, Ordering::Relaxed);
        process::reset_peak_memory(self.server.pid())
    }

    /// The number for the next new key.
    pub(crate) fn new_number(next: &AtomicU64) -> u64 {
        next.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits until the server is idle: it uses hardly any processor time, and a reported commit lag is zero. Gives up after
    /// `limit`.
    ///
    /// Returns the time until it became idle, without the window in which that was observed.
    pub(crate) async fn settle(&self, limit: Duration) -> Result<Settled> {
        let start = Instant::now();
        loop {
            let (window_start, before) = (Instant::now(), self.usage()?.cpu);
            tokio::time::sleep(QUIET_WINDOW).await;
            let used = self.usage()?.cpu.saturating_sub(before);
            let behind = self.server.kind.commits_later() && lag::sample(self.server.address()).await?.revisions > 0.0;
            let after = window_start.duration_since(start);
            let busy = used.as_secs_f64() > QUIET_CORE * window_start.elapsed().as_secs_f64();
            if !busy && !behind {
                return Ok(Settled { after, quiet: true });
            }
            if start.elapsed() >= limit {
                return Ok(Settled { after, quiet: false });
            }
        }
    }
}

/// How long a server kept working after its load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    /// Duration of that work.
    pub(crate) after: Duration,
    /// Whether the server became idle within the limit.
    pub(crate) quiet: bool,
}
