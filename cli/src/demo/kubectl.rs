//! Runs kubectl, as a user does.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The label of the demo's objects, and of no others.
pub(super) const MARK: &str = "demo.trishanku.org/run";
/// How long deleted objects may remain.
const REMOVED_WITHIN: Duration = Duration::from_secs(30);

/// kubectl with a kubeconfig.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

/// Why a kubectl command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubectlError {
    /// It cannot be started.
    #[error("cannot start {program:?}; `make assets` provides one")]
    Start {
        /// The program.
        program: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// kubectl reported an error.
    #[error("`kubectl {arguments}`: {said}")]
    Failed {
        /// Its arguments.
        arguments: String,
        /// Its standard error.
        said: String,
    },
}

impl Kubectl {
    /// Creates a handle for this program and kubeconfig.
    #[must_use]
    pub fn new(program: PathBuf, kubeconfig: PathBuf) -> Self {
        Self { program, kubeconfig }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::null());
        command
    }

    /// Runs kubectl and returns its output.
    ///
    /// # Errors
    /// See [`KubectlError`].
    pub fn run(&self, arguments: &[&str]) -> Result<String, KubectlError> {
        self.output(self.command(arguments), arguments, None)
    }

    /// Runs kubectl with `input` on standard input and returns its output.
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
            // If it exits without reading, its error explains why.
            let _unread = pipe.write_all(text.as_bytes());
        }
        let output = child.wait_with_output().map_err(start)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(KubectlError::Failed { arguments: arguments.join(" "), said })
    }

    /// Deletes a Deployment of `kubectl create deployment`, if it exists, and its pods, which would wait for a kubelet if
    /// there is none.
    ///
    /// # Errors
    /// See [`KubectlError`]; also if pods remain after half a minute.
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
                let said = format!("{} objects of {name} remain", left.lines().count());
                return Err(KubectlError::Failed { arguments: format!("delete pods {select}"), said });
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Deletes the objects of [`super::Demo`], by their label.
    ///
    /// # Errors
    /// See [`KubectlError`]; also if another Deployment has this name, or objects remain after half a minute.
    pub(super) fn remove_demo(&self, name: &str) -> Result<(), KubectlError> {
        let own = format!("--selector={MARK}");
        let others = format!("--selector=!{MARK}");
        let field = format!("--field-selector=metadata.name={name}");
        let found = self.run(&["get", "deployments", &others, &field, "--output=name"])?;
        if !found.trim().is_empty() {
            let said = format!(
                "the Deployment {name:?} was not created by the demo (it has no label {MARK}) and stays unchanged: delete or rename it"
            );
            return Err(KubectlError::Failed { arguments: "get deployments".to_owned(), said });
        }
        self.run(&["delete", "deployments", &own, "--ignore-not-found"])?;
        self.remove_pods(&own, name)
    }

    /// The manifest of the demo's Deployment.
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

    /// Watches the pods of an app.
    ///
    /// # Errors
    /// See [`KubectlError`].
    pub fn follow_pods(&self, app: &str) -> Result<Pods, KubectlError> {
        self.follow(&format!("--selector=app={app}"))
    }

    /// Watches only the demo's pods.
    pub(super) fn follow_demo(&self) -> Result<Pods, KubectlError> {
        self.follow(&format!("--selector={MARK}"))
    }

    fn follow(&self, select: &str) -> Result<Pods, KubectlError> {
        let template = r#"--output=jsonpath={.metadata.name} {.spec.nodeName}{"\n"}"#;
        let mut command = self.command(&["get", "pods", select, "--watch", template]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.map_err(|source| KubectlError::Start { program: self.program.clone(), source })?;
        let output = child.stdout.take().expect("the child was started with a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            // Stops when the receiver is gone.
            let _gone: Vec<()> = lines.map_while(|line| sender.send(line).ok()).collect();
        });
        Ok(Pods { child, lines, nodes: BTreeMap::new() })
    }
}

/// Pods and their nodes, from a watch.
#[derive(Debug)]
pub struct Pods {
    child: Child,
    lines: Receiver<String>,
    nodes: BTreeMap<String, String>,
}

impl Pods {
    /// Waits until `wanted` pods have a node, at most for `patience`; returns how many have one.
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
