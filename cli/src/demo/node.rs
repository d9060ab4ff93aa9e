//! A placeholder node until a real one joins: pods are bound to it, but do not run.

use std::time::Duration;

use serde_json::json;
use time::OffsetDateTime;

use super::kubectl::{Kubectl, KubectlError};

const NAME: &str = "stand-in";

/// A Node object without a kubelet. Unless [`Self::beat`] is called, kube-controller-manager marks it as lost after about
/// 40 s.
#[derive(Debug)]
pub struct StandIn {
    is_ours: bool,
}

impl StandIn {
    /// Creates one, unless there is a ready node.
    ///
    /// # Errors
    /// See [`KubectlError`].
    pub fn ensure(kubectl: &Kubectl) -> Result<Self, KubectlError> {
        let ready = r#"--output=jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}"#;
        let nodes = kubectl.run(&["get", "nodes", ready])?;
        if nodes.lines().any(|line| !line.starts_with(NAME) && line.ends_with("=True")) {
            return Ok(Self { is_ours: false });
        }
        if !nodes.lines().any(|line| line.starts_with(NAME)) {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}});
            kubectl.run_with(&["create", "--filename=-"], &node.to_string())?;
        }
        let node = Self { is_ours: true };
        node.beat(kubectl)?;
        // The node controller removes the taint of a new node once that is ready.
        let taints = ["get", "node", NAME, "--output=jsonpath={.spec.taints[*].key}"];
        for _ in 0..200 {
            if kubectl.run(&taints)?.trim().is_empty() {
                return Ok(node);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let said = "kube-controller-manager has not marked the node as ready; see its log".to_owned();
        Err(KubectlError::Failed { arguments: taints.join(" "), said })
    }

    /// Reports the node as ready, as a kubelet does.
    ///
    /// # Errors
    /// See [`KubectlError`].
    pub fn beat(&self, kubectl: &Kubectl) -> Result<(), KubectlError> {
        if !self.is_ours {
            return Ok(());
        }
        let now = OffsetDateTime::now_utc();
        let now = format!(
            "{}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
            now.year(),
            u8::from(now.month()),
            now.day(),
            now.hour(),
            now.minute(),
            now.second()
        );
        let room = json!({"cpu": "1000", "memory": "4Ti", "pods": "20000"});
        let patch = json!({"status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "StandsIn", "message": "nothing runs here",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            }],
        }});
        let patch = format!("--patch={patch}");
        kubectl.run(&["patch", "node", NAME, "--subresource=status", "--type=merge", &patch]).map(drop)
    }

    /// Deletes the placeholder unless pods are bound to it; returns whether it stays.
    ///
    /// # Errors
    /// See [`KubectlError`].
    pub fn remove_unless_used(&self, kubectl: &Kubectl) -> Result<bool, KubectlError> {
        let select = format!("--field-selector=spec.nodeName={NAME}");
        let is_used = self.is_ours
            && !kubectl.run(&["get", "pods", "--all-namespaces", &select, "--output=name"])?.trim().is_empty();
        if !is_used {
            self.remove(kubectl)?;
        }
        Ok(is_used)
    }

    /// Deletes the placeholder, if there is one.
    ///
    /// # Errors
    /// See [`KubectlError`].
    pub fn remove(&self, kubectl: &Kubectl) -> Result<(), KubectlError> {
        if self.is_ours {
            kubectl.run(&["delete", "node", NAME, "--ignore-not-found"])?;
        }
        Ok(())
    }
}
