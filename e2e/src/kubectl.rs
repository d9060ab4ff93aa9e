//! kubectl, called as a user does.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::{Cluster, wait};

impl Cluster {
    /// kubectl with this control plane's kubeconfig, without the user's configuration.
    #[must_use]
    pub fn kubectl_command(&self) -> Command {
        let mut command = Command::new(self.program("kubectl"));
        command.env("KUBECONFIG", self.home().kubeconfig()).env("KUBECACHEDIR", self.scratch().join("kubectl-cache"));
        command
    }

    /// Runs kubectl and returns its output.
    ///
    /// # Errors
    /// If it fails; the text has the arguments and the error output.
    pub fn kubectl<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> anyhow::Result<String> {
        self.kubectl_with(args, "")
    }

    /// Runs kubectl with this standard input (`-f -`).
    ///
    /// # Errors
    /// Like [`Self::kubectl`].
    pub fn kubectl_with<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: &str,
    ) -> anyhow::Result<String> {
        let (command, output) = self.run_kubectl(args, input)?;
        if !output.status.success() {
            bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs kubectl, which must fail; returns its error output.
    ///
    /// # Errors
    /// If it succeeds.
    pub fn kubectl_failing<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: &str,
    ) -> anyhow::Result<String> {
        let (command, output) = self.run_kubectl(args, input)?;
        if output.status.success() {
            bail!("{command:?} succeeded, but should fail");
        }
        Ok(String::from_utf8(output.stderr)?)
    }

    /// Runs kubectl, which may fail.
    fn run_kubectl<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: &str,
    ) -> anyhow::Result<(Command, Output)> {
        let mut command = self.kubectl_command();
        command.args(args);
        let output = run(&mut command, input)?;
        Ok((command, output))
    }

    /// `kubectl get … -o json`, parsed. `what` is split at spaces.
    ///
    /// # Errors
    /// Like [`Self::kubectl`].
    pub fn object(&self, what: &str) -> anyhow::Result<Value> {
        let args = ["get", "-o", "json"].into_iter().chain(what.split(' '));
        Ok(serde_json::from_str(&self.kubectl(args)?)?)
    }

    /// `kubectl get --raw path`, parsed.
    ///
    /// # Errors
    /// Like [`Self::kubectl`].
    pub fn raw(&self, path: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.kubectl(["get", "--raw", path])?)?)
    }

    /// Creates a namespace for a scenario, and waits until pods can be created in it.
    ///
    /// # Errors
    /// If it cannot be created, or is not ready in time.
    pub fn namespace(&self, name: &str) -> anyhow::Result<()> {
        self.kubectl(["create", "namespace", name])?;
        wait::until("the default service account", || {
            self.kubectl(["get", "serviceaccount", "default", "-n", name]).map(Some)
        })?;
        Ok(())
    }

    /// Waits until deleted objects are gone. `what` is split at spaces.
    ///
    /// # Errors
    /// If they still exist at the timeout.
    pub fn wait_gone(&self, what: &str) -> anyhow::Result<()> {
        wait::until_true(&format!("{what} to be gone"), || {
            let args = ["get", "--ignore-not-found", "-o", "name"];
            let left = self.kubectl(args.into_iter().chain(what.split(' ')))?;
            Ok(left.trim().is_empty())
        })
    }
}

fn run(command: &mut Command, input: &str) -> anyhow::Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    let mut stdin = child.stdin.take().context("the process has no pipe")?;
    // A kubectl that fails early does not read its input; its exit status says more than the broken pipe.
    let _unread = stdin.write_all(input.as_bytes());
    drop(stdin);
    Ok(child.wait_with_output()?)
}

/// `ConfigMap`s as a stream for `-f -`: `<prefix>-<number>`, each with its number as data.
#[must_use]
pub fn config_maps(prefix: &str, numbers: std::ops::Range<usize>) -> String {
    let map = |number| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {prefix}-{number:04}\ndata:\n  number: \"{number}\"\n"
        )
    };
    numbers.map(map).collect::<Vec<_>>().join("---\n")
}
