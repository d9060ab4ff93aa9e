//! Runs kubectl, as a user does.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The label of the demos' objects, and of no others; its value is the name of the Deployment.
pub(super) const MARK: &str = "demo.trishanku.org/run";
/// The label of the objects that later demos leave alone.
const KEPT: &str = "demo.trishanku.org/kept";
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

    /// Deletes the objects of demos, except those that are kept.
    ///
    /// # Errors
    /// See [`KubectlError`]; also if objects remain after half a minute.
    pub(super) fn remove_demos(&self) -> Result<(), KubectlError> {
        let select = format!("--selector={MARK},!{KEPT}");
        self.run(&["delete", "deployments", &select, "--ignore-not-found"])?;
        self.remove_pods(&select, "the demo")
    }

    /// Returns a name that no Deployment has: this one, or with a number.
    ///
    /// # Errors
    /// See [`KubectlError`].
    pub(super) fn free_name(&self, name: &str) -> Result<String, KubectlError> {
        let found = self.run(&["get", "deployments", "--output=name"])?;
        Ok(free_name(name, found.lines().filter_map(|line| line.split_once('/')).map(|(_, name)| name)))
    }

    /// The manifest of the demo's Deployment.
    pub(super) fn demo(name: &str, replicas: u32, keep: bool) -> Value {
        let mut labels = json!({"app": name, MARK: name});
        if keep {
            labels[KEPT] = "true".into();
        }
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

    /// Watches only the pods of the demo of this name.
    pub(super) fn follow_demo(&self, name: &str) -> Result<Pods, KubectlError> {
        self.follow(&format!("--selector={MARK}={name}"))
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

fn free_name<'a>(name: &str, taken: impl Iterator<Item = &'a str>) -> String {
    let taken: Vec<&str> = taken.collect();
    let names = std::iter::once(name.to_owned()).chain((2..=taken.len() + 1).map(|number| format!("{name}-{number}")));
    let mut free = names.filter(|name| !taken.contains(&name.as_str()));
    free.next().expect("there are more names than Deployments")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        let free = |taken: &[&str]| free_name("demo", taken.iter().copied());
        assert_eq!(free(&[]), "demo");
        assert_eq!(free(&["other"]), "demo");
        assert_eq!(free(&["demo"]), "demo-2");
        assert_eq!(free(&["demo-3", "demo", "demo-2"]), "demo-4");
        assert_eq!(free(&["demo-2", "demo-3"]), "demo");
    }

    #[test]
    fn kept_objects_have_a_label_that_protects_them() {
        let [kept, other] = [true, false].map(|keep| Kubectl::demo("demo", 1, keep));
        for labels in ["/metadata/labels", "/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
            assert_eq!(kept.pointer(labels).unwrap()[KEPT], "true");
            assert_eq!(other.pointer(labels).unwrap().get(KEPT), None);
            assert_eq!(other.pointer(labels).unwrap()[MARK], "demo");
        }
    }
}
