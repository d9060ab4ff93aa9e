//! kubectl at a cluster, called as a user does.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

use super::Provider;

impl dyn Provider + '_ {
    /// kubectl as administrator.
    #[must_use]
    pub fn kubectl_command(&self) -> Command {
        let mut command = self.command(&self.kubectl_program());
        command.env("KUBECONFIG", self.kubeconfig());
        command
    }

    /// Runs kubectl and returns its output.
    ///
    /// # Errors
    /// If it fails; the text has the arguments and the error output.
    pub fn kubectl<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> anyhow::Result<String> {
        said(self.kubectl_command().args(arguments), "")
    }

    /// Runs `kubectl apply` with a manifest.
    ///
    /// # Errors
    /// If kubectl fails; the text has the arguments and the error output.
    pub fn apply(&self, manifest: &str) -> anyhow::Result<String> {
        said(self.kubectl_command().args(["apply", "--filename=-"]), manifest)
    }

    /// `kubectl get … -o json`, parsed. `what` is split at spaces.
    ///
    /// # Errors
    /// If kubectl fails; the text has the arguments and the error output.
    pub fn object(&self, what: &str) -> anyhow::Result<Value> {
        let arguments = ["get", "--output=json"].into_iter().chain(what.split(' '));
        Ok(serde_json::from_str(&self.kubectl(arguments)?)?)
    }

    /// Forwards a port of a pod, until the returned value is dropped.
    ///
    /// # Errors
    /// If kubectl fails.
    pub fn forward(&self, namespace: &str, target: &str, port: u16) -> anyhow::Result<Forward> {
        let arguments = ["port-forward", "--namespace", namespace, target, &format!(":{port}")];
        Forward::open(self.kubectl_command().args(arguments))
    }
}

/// A port of a pod, forwarded to a loopback port.
#[derive(Debug)]
pub struct Forward {
    process: Child,
    port: u16,
}

impl Forward {
    fn open(command: &mut Command) -> anyhow::Result<Self> {
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut output = BufReader::new(process.stdout.take().context("the process has no pipe")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        // Forwarding from 127.0.0.1:34567 -> 6443
        let port = line.split(' ').find_map(|word| word.strip_prefix("127.0.0.1:")?.parse().ok());
        let Some(port) = port else {
            let _ended = process.kill();
            let output = process.wait_with_output()?;
            bail!("{command:?}: {line}{}", String::from_utf8_lossy(&output.stderr).trim());
        };
        // It reports every connection, and exits if its output is not read.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Ok(Self { process, port })
    }

    /// The loopback port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Runs a program until it exits, and returns its output.
///
/// # Errors
/// If it fails; the text has its arguments and output.
pub fn said(command: &mut Command, input: &str) -> anyhow::Result<String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let mut stdin = child.stdin.take().context("the process has no pipe")?;
    // A program that fails early does not read its input; its exit status says more than the broken pipe.
    let _unread = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let name = Path::new(command.get_program()).display();
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("{name} {}: {}{}", words.join(" "), String::from_utf8_lossy(&output.stdout), complaint.trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}
