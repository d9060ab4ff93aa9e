//! kubectl, as a person uses it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The label of what the demo makes, and of nothing else.
pub(super) const MARK: &str = "demo.trishanku.org/run";
/// How long what was deleted may stay.
const REMOVED_WITHIN: Duration = Duration::from_secs(30);

/// kubectl with a kubeconfig.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

/// Why kubectl did not do it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubectlError {
    /// It cannot be started.
    #[error("cannot start {program:?}; `make assets` provides one")]
    Start {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It failed.
    #[error("`kubectl {arguments}`: {said}")]
    Failed {
        /// What it was to do.
        arguments: String,
        /// What it said.
        said: String,
    },
}

impl Kubectl {
    /// This program with this kubeconfig.
    #[must_use]
    pub fn new(program: PathBuf, kubeconfig: PathBuf) -> Self {
        Self { program, kubeconfig }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::null());
        command
    }

    /// What it prints.
    ///
    /// # Errors
    /// See [`KubectlError`].
    pub fn run(&self, arguments: &[&str]) -> Result<String, KubectlError> {
        self.output(self.command(arguments), arguments, None)
    }

    /// The same with something to read.
    ///
    /// # Errors
    /// See [`KubectlError`].
    pub fn run_with(&self, arguments: &[&str], input: &str) -> Result<String, KubectlError> {
        self.output(self.command(arguments), arguments, Some(input))
    }

    fn output(&self, mut command: Command, arguments: &[&str], input: Option<&str>) -> Result<String, KubectlError> {
        let start = |source| KubectlError::Start { program: self.program.clone(), source };
        if input.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(start)?;
        if let (Some(text), Some(mut pipe)) = (input, child.stdin.take()) {
            // One that ends without reading says why.
            let _unread = pipe.write_all(text.as_bytes());
        }
        let output = child.wait_with_output().map_err(start)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(KubectlError::Failed { arguments: arguments.join(" "), said })
    }

    /// Deletes a Deployment that `kubectl create deployment` made, if it is there, and its pods. Where no kubelet is, these would wait for one.
    ///
    /// # Errors
    /// See [`KubectlError`]; also if pods are still there after half a minute.
    pub fn remove_deployment(&self, name: &str) -> Result<(), KubectlError> {
        self.run(&["delete", "deployment", name, "--ignore-not-found"])?;
        self.remove_pods(&format!("--selector=app={name}"), name)
    }

    fn remove_pods(&self, select: &str, name: &str) -> Result<(), KubectlError> {
        let deadline = Instant::now() + REMOVED_WITHIN;
        loop {
            self.run(&["delete", "pods", select, "--force", "--grace-period=0", "--wait=false"])?;
            let left = self.run(&["get", "replicasets,pods", select, "--output=name"])?;
            if left.trim().is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let said = format!("{} objects of {name} are still there", left.lines().count());
                return Err(KubectlError::Failed { arguments: format!("delete pods {select}"), said });
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Deletes what [`super::Demo`] made, by the label that only this has.
    ///
    /// # Errors
    /// See [`KubectlError`]; also if a Deployment of its name is there that somebody else made, or if something stays for half a minute.
    pub(super) fn remove_demo(&self, name: &str) -> Result<(), KubectlError> {
        let own = format!("--selector={MARK}");
        let others = format!("--selector=!{MARK}");
        let field = format!("--field-selector=metadata.name={name}");
        let found = self.run(&["get", "deployments", &others, &field, "--output=name"])?;
        if !found.trim().is_empty() {
            let said = format!(
                "there is a Deployment {name:?} that the demo did not make (it has no label {MARK}), so it is left alone: delete or rename it"
            );
            return Err(KubectlError::Failed { arguments: "get deployments".to_owned(), said });
        }
        self.run(&["delete", "deployments", &own, "--ignore-not-found"])?;
        self.remove_pods(&own, name)
    }

    /// The manifest of what the demo makes.
    pub(super) fn demo(name: &str, replicas: u32) -> Value {
        let labels = json!({"app": name, MARK: "true"});
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "pause", "image": "registry.k8s.io/pause:3.10"}]},
                },
            },
        })
    }

    /// Follows the pods of an app: sees each change when the API server tells it.
    ///
    /// # Errors
    /// See [`KubectlError`].
    pub fn follow_pods(&self, app: &str) -> Result<Pods, KubectlError> {
        self.follow(&format!("--selector=app={app}"))
    }

    /// Follows the pods of the demo alone.
    pub(super) fn follow_demo(&self) -> Result<Pods, KubectlError> {
        self.follow(&format!("--selector={MARK}"))
    }

    fn follow(&self, select: &str) -> Result<Pods, KubectlError> {
        let template = r#"--output=jsonpath={.metadata.name} {.spec.nodeName}{"\n"}"#;
        let mut command = self.command(&["get", "pods", select, "--watch", template]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.map_err(|source| KubectlError::Start { program: self.program.clone(), source })?;
        let output = child.stdout.take().expect("it was started with a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            // Nobody who listens, nothing to tell.
            let _gone: Vec<()> = lines.map_while(|line| sender.send(line).ok()).collect();
        });
        Ok(Pods { child, lines, nodes: BTreeMap::new() })
    }
}

/// Pods and their nodes, as they come.
#[derive(Debug)]
pub struct Pods {
    child: Child,
    lines: Receiver<String>,
    nodes: BTreeMap<String, String>,
}

impl Pods {
    /// Returns as soon as so many pods have a node, or the patience is over; answers with how many have.
    pub fn until_bound(&mut self, wanted: usize, patience: Duration) -> usize {
        let deadline = Instant::now() + patience;
        while self.nodes.len() < wanted {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some((pod, node)) = line.split_once(' ').filter(|(_, node)| !node.is_empty()) {
                        self.nodes.insert(pod.to_owned(), node.to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        self.nodes.len()
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
