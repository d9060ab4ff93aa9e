//! A store with its kube-apiserver.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Store;
use super::apiserver::ApiServer;
use super::figures::Done;
use super::work::{Turn, Work};
use crate::process;
use crate::target::Target;

const SETTLE_LIMIT: Duration = Duration::from_secs(30);
/// A kube-apiserver is idle when it uses less than this share of one core …
const QUIET_CORE: f64 = 0.3;
/// … over this time.
const QUIET_WINDOW: Duration = Duration::from_millis(300);

/// A store with its kube-apiserver.
pub(super) struct Plane<'t> {
    pub(super) target: &'t Target,
    pub(super) apiserver: ApiServer,
}

impl Plane<'_> {
    /// Version of its kube-apiserver.
    pub(super) async fn version(&self) -> Result<String> {
        let answer = self.apiserver.http.get(0, "/version").await?;
        let version: serde_json::Value = serde_json::from_slice(&answer)?;
        Ok(version["gitVersion"].as_str().unwrap_or("unknown").trim_start_matches('v').to_owned())
    }

    /// Runs one turn and waits until both processes are idle again.
    pub(super) async fn turn(&self, work: Work, turn: &Turn) -> Result<Done> {
        let (own, apiserver) = (std::process::id(), self.apiserver.pid());
        let (store_before, apiserver_before) = (self.target.usage()?, process::cpu(apiserver)?);
        let (own_before, machine_before) = (process::cpu(own)?, process::machine_cpu()?);
        let label = &self.target.server.label;
        let tally = work.turn(&self.apiserver.http, turn).await.with_context(|| format!("on {label}"))?;
        let machine = process::machine_cpu()?.saturating_sub(machine_before);
        let client_cpu = process::cpu(own)?.saturating_sub(own_before);
        let servers =
            (self.target.usage()?.cpu + process::cpu(apiserver)?).saturating_sub(store_before.cpu + apiserver_before);
        self.settle().await?;
        let after = self.target.usage()?;
        Ok(Done {
            tally,
            store: process::Usage {
                cpu: after.cpu.saturating_sub(store_before.cpu),
                written: after.written.saturating_sub(store_before.written),
            },
            apiserver_cpu: process::cpu(apiserver)?.saturating_sub(apiserver_before),
            client_cpu,
            other_cpu: machine.saturating_sub(servers).saturating_sub(client_cpu),
        })
    }

    /// Waits until neither process works on in the other's turn.
    async fn settle(&self) -> Result<()> {
        let settled = self.target.settle(SETTLE_LIMIT).await?;
        let label = &self.target.server.label;
        anyhow::ensure!(settled.quiet, "{label}: not idle within {SETTLE_LIMIT:?}");
        let start = Instant::now();
        while start.elapsed() < SETTLE_LIMIT {
            let (window, before) = (Instant::now(), process::cpu(self.apiserver.pid())?);
            tokio::time::sleep(QUIET_WINDOW).await;
            let used = process::cpu(self.apiserver.pid())?.saturating_sub(before);
            if used.as_secs_f64() < QUIET_CORE * window.elapsed().as_secs_f64() {
                return Ok(());
            }
        }
        anyhow::bail!("kube-apiserver on {label}: not idle within {SETTLE_LIMIT:?}")
    }

    /// Stops the kube-apiserver; the store keeps running.
    pub(super) async fn end(self) -> Result<Store> {
        let Self { target, apiserver } = self;
        let store = Store {
            label: target.server.label.clone(),
            version: target.server.version.clone(),
            peak_memory: target.highest_memory()?,
            apiserver_peak_memory: process::peak_memory(apiserver.pid())?,
            revisions: target.client.revision().await?,
        };
        apiserver.stop().await?;
        Ok(store)
    }
}
