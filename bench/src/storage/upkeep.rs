//! Repacks on demand, and `git` on the result.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::disk;
use crate::lag;
use crate::target::Target;

/// A repack of a million revisions takes minutes of one core.
const JOIN_LIMIT: Duration = Duration::from_mins(30);
const POLL: Duration = Duration::from_millis(100);
/// gitcd does not repack younger packs, as a flush may extend them.
const YOUNG: Duration = Duration::from_secs(31);

/// A requested repack.
pub(super) struct RepackRequest {
    before: f64,
    started: Instant,
}

impl RepackRequest {
    /// Requests a repack of all packs, once all are old enough.
    pub(super) async fn ask(target: &Target) -> Result<Self> {
        tokio::time::sleep(YOUNG).await;
        let before = joins(target).await?;
        let started = Instant::now();
        target.client.defragment().await?;
        Ok(Self { before, started })
    }

    /// Whether a repack has finished since the request.
    pub(super) async fn done(&self, target: &Target) -> Result<bool> {
        ensure!(self.started.elapsed() < JOIN_LIMIT, "the repack did not finish within {JOIN_LIMIT:?}");
        Ok(joins(target).await? > self.before)
    }

    /// Waits until one pack is left, and returns the seconds; there must be no writes meanwhile.
    ///
    /// The first repack to finish may have started before the request: the one that leaves a single pack follows it.
    pub(super) async fn wait(self, target: &Target) -> Result<f64> {
        let folder = target.server.repository().join("objects/pack");
        while !self.done(target).await? || count(&folder)? > 1 {
            tokio::time::sleep(POLL).await;
        }
        Ok(self.started.elapsed().as_secs_f64())
    }
}

fn count(folder: &Path) -> Result<usize> {
    let entries = folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))?;
    Ok(entries.flatten().filter(|entry| entry.path().extension().is_some_and(|extension| extension == "pack")).count())
}

async fn joins(target: &Target) -> Result<f64> {
    let figures = lag::figures(target.server.address()).await?;
    let failed = lag::value(&figures, "gitcd_pack_join_failures_total")?;
    ensure!(failed == 0.0, "a repack failed:\n{}", target.server.last_words());
    lag::value(&figures, "gitcd_pack_joins_total")
}

/// Bytes of the repository's objects and their indices.
pub(super) fn packs(target: &Target) -> Result<u64> {
    let parts = disk::parts(target.server.kind, &target.server.data())?;
    Ok(parts.iter().filter(|part| part.name == "packs").map(|part| part.bytes).sum())
}

/// Runs stock Git on a repository; returns its output and duration in seconds.
///
/// # Errors
/// If it fails; the message has its error output.
pub(super) async fn git<A: AsRef<OsStr>>(repository: &Path, arguments: &[A]) -> Result<(String, f64)> {
    let mut command = Command::new("git");
    command.arg("--git-dir").arg(repository).args(arguments);
    let started = Instant::now();
    let output = tokio::task::spawn_blocking(move || command.output()).await?.context("cannot start git")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {} failed: {said}", arguments[0].as_ref().display());
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), started.elapsed().as_secs_f64()))
}
