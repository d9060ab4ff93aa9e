//! A headless cluster: its heavens, and whether their branches agree.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::Signal;
use trishanku::demo::Kubectl;
use trishanku::heavens::HeavenRecord;
use trishanku::plane::State;

use crate::{Cluster, git, wait};

/// Branches at one commit that have not moved for this time agree.
const QUIET: Duration = Duration::from_secs(1);

impl Cluster {
    /// The running heavens and merges.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub fn heavens(&self) -> anyhow::Result<Vec<HeavenRecord>> {
        Ok(State::load(&self.home().state_file())?.heavens)
    }

    /// Finds a heaven by name.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn heaven(&self, name: &str) -> anyhow::Result<HeavenRecord> {
        let found = self.heavens()?.into_iter().find(|heaven| heaven.name == name);
        found.with_context(|| format!("no heaven {name}"))
    }

    /// The head of each branch, by the name of its heaven.
    ///
    /// # Errors
    /// If Git fails.
    pub fn heads(&self) -> anyhow::Result<Vec<(String, String)>> {
        let head = |heaven: HeavenRecord| {
            let head = git::run(&heaven.repository, &["rev-parse", &heaven.branch])?;
            Ok((heaven.name, head.trim().to_owned()))
        };
        self.heavens()?.into_iter().map(head).collect()
    }

    /// Waits until all branches are at the same commit and stay there; returns it.
    ///
    /// # Errors
    /// On a timeout; the text has the heads.
    pub fn wait_agreed(&self) -> anyhow::Result<String> {
        let deadline = Instant::now() + wait::PATIENCE;
        let (mut before, mut since) = (Vec::new(), Instant::now());
        loop {
            let heads = self.heads()?;
            if heads != before {
                (before, since) = (heads, Instant::now());
            } else if since.elapsed() >= QUIET && before.iter().all(|(_, head)| *head == before[0].1) {
                return Ok(before[0].1.clone());
            }
            if Instant::now() > deadline {
                bail!("the branches did not agree within {:?}: {before:?}", wait::PATIENCE);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// kubectl at the desk, called as a user does.
    #[must_use]
    pub fn plain_kubectl(&self) -> Kubectl {
        Kubectl::new(self.program("kubectl"), self.home().kubeconfig())
    }

    /// Runs kubectl at a heaven.
    ///
    /// # Errors
    /// If there is no such heaven, or kubectl fails.
    pub fn kubectl_at<S: AsRef<OsStr>>(
        &self,
        heaven: &str,
        args: impl IntoIterator<Item = S>,
    ) -> anyhow::Result<String> {
        let kubeconfig = self.heaven(heaven)?.kubeconfig.context("the heaven has no kubeconfig")?;
        let mut command = self.kubectl_command();
        let output = command.env("KUBECONFIG", kubeconfig).args(args).output()?;
        if !output.status.success() {
            bail!("at {heaven}: {command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Sends a signal to a component.
    ///
    /// # Errors
    /// If it is not running.
    pub fn signal(&self, component: &str, signal: Signal) -> anyhow::Result<()> {
        let state = State::load(&self.home().state_file())?;
        let found = state.components.into_iter().find(|c| c.name == component).and_then(|component| component.process);
        found.with_context(|| format!("{component} is not running"))?.signal(signal)?;
        Ok(())
    }

    /// Points the remotes of a heaven to a path that does not exist; returns their URLs.
    ///
    /// # Errors
    /// If Git fails.
    pub fn cut_off(&self, heaven: &str) -> anyhow::Result<Vec<(String, String)>> {
        let repository = self.heaven(heaven)?.repository;
        let mut before = Vec::new();
        for name in git::run(&repository, &["remote"])?.lines() {
            let key = format!("remote.{name}.url");
            before.push((key.clone(), git::run(&repository, &["config", &key])?.trim().to_owned()));
            git::run(&repository, &["config", &key, "/nowhere/at/all.git"])?;
        }
        Ok(before)
    }

    /// Restores the URLs of the remotes.
    ///
    /// # Errors
    /// If Git fails.
    pub fn join_again(&self, heaven: &str, remotes: &[(String, String)]) -> anyhow::Result<()> {
        let repository = self.heaven(heaven)?.repository;
        remotes.iter().try_for_each(|(key, url)| git::run(&repository, &["config", key, url]).map(drop))
    }
}

/// Whether a commit contains a file.
///
/// # Errors
/// If Git fails.
pub fn has_file(repository: &Path, commit: &str, path: &str) -> anyhow::Result<bool> {
    Ok(!git::run(repository, &["ls-tree", commit, "--", path])?.is_empty())
}
