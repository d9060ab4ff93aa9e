//! A cluster of kind, for machines with a container engine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use trishanku::plane::Assets;

use super::Provider;
use super::kubectl::said;

/// How long kind may take; it downloads its node image the first time.
const WAIT: &str = "5m";

/// A running cluster. Dropping it deletes it.
pub struct Kind {
    name: String,
    program: PathBuf,
    kubectl: PathBuf,
    folder: TempDir,
}

impl Kind {
    /// Makes a cluster, and returns when its node is ready and has the images.
    ///
    /// # Errors
    /// If there is no kind or no container engine, or it fails; the text has what kind said.
    pub fn start() -> anyhow::Result<Self> {
        let program = std::env::var_os("KIND").map_or_else(|| "kind".into(), PathBuf::from);
        Self::of(program, Assets::find(None)?.program("kubectl"), &super::archives()?)
    }

    fn of(program: PathBuf, kubectl: PathBuf, archives: &[PathBuf]) -> anyhow::Result<Self> {
        said(Command::new(&program).arg("version"), "").context(
            "kind does not work here: install it (https://kind.sigs.k8s.io), or set TRISHANKU_E2E_CLUSTER=host as root",
        )?;
        let folder = tempfile::Builder::new().prefix("trishanku-kind-").tempdir()?;
        let kind = Self { name: format!("trishanku-{}", std::process::id()), program, kubectl, folder };
        let config = kind.folder.path().join("kind.json");
        std::fs::write(&config, configuration().to_string())?;
        let config = config.to_str().context("the folder has a name in UTF-8")?;
        kind.run(&["create", "cluster", "--config", config, "--wait", WAIT])?;
        kind.load(archives)?;
        Ok(kind)
    }

    fn run(&self, words: &[&str]) -> anyhow::Result<String> {
        said(&mut self.kind(words), "")
    }

    fn kind(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).args(["--name", &self.name]).env("KUBECONFIG", self.kubeconfig());
        command
    }
}

/// The configuration: one node, and nothing that the scenarios on the host's own node do not have.
#[must_use]
pub fn configuration() -> Value {
    json!({
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"podSubnet": "10.244.0.0/16", "serviceSubnet": super::host::SERVICE_RANGE, "apiServerAddress": "127.0.0.1"},
        "nodes": [{"role": "control-plane"}],
    })
}

impl Provider for Kind {
    fn load(&self, archives: &[PathBuf]) -> anyhow::Result<()> {
        for archive in archives {
            ensure!(archive.is_file(), "there is no {}", archive.display());
            let file = archive.to_str().context("an archive has a name in UTF-8")?;
            self.run(&["load", "image-archive", file])?;
        }
        Ok(())
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("KUBECACHEDIR", self.folder.path().join("kubectl-cache"));
        command
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    fn kubectl_program(&self) -> PathBuf {
        self.kubectl.clone()
    }

    fn last_words(&self) -> String {
        format!("the logs of kind: kind export logs --name {}", self.name)
    }
}

impl Drop for Kind {
    fn drop(&mut self) {
        if let Err(error) = self.run(&["delete", "cluster"]) {
            eprintln!("cannot delete the cluster {}: {error:#}", self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use serde::Deserialize;

    use super::*;

    /// The configuration's schema, as far as it is used: <https://kind.sigs.k8s.io/docs/user/configuration/>.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Cluster {
        kind: String,
        api_version: String,
        networking: Networking,
        nodes: Vec<Node>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Networking {
        pod_subnet: String,
        service_subnet: String,
        api_server_address: std::net::IpAddr,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Node {
        role: String,
    }

    #[test]
    fn the_configuration_is_one_of_kind_with_the_networks_that_manifests_rely_on() {
        let cluster: Cluster = serde_json::from_value(configuration()).unwrap();
        assert_eq!((cluster.kind.as_str(), cluster.api_version.as_str()), ("Cluster", "kind.x-k8s.io/v1alpha4"));
        assert_eq!(cluster.networking.service_subnet, "10.96.0.0/16");
        assert_eq!(cluster.networking.pod_subnet, "10.244.0.0/16");
        assert!(cluster.networking.api_server_address.is_loopback());
        let roles: Vec<_> = cluster.nodes.iter().map(|node| node.role.as_str()).collect();
        assert_eq!(roles, ["control-plane"]);
    }

    /// A program in kind's place that notes what it is asked for.
    fn stand_in(folder: &Path) -> PathBuf {
        let program = folder.join("kind");
        let script = format!("#!/bin/sh\necho \"$@\" >> {}\n", folder.join("asked").display());
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    #[test]
    fn a_cluster_is_made_gets_each_archive_and_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let program = stand_in(folder.path());
        let archives = ["a.tar", "b.tar"].map(|name| folder.path().join(name));
        archives.iter().for_each(|archive| fs::write(archive, "").unwrap());
        let kind = Kind::of(program, "kubectl".into(), &archives).unwrap();
        let missing = kind.load(&[folder.path().join("c.tar")]).unwrap_err().to_string();
        assert!(missing.contains("c.tar"), "{missing}");
        let (name, config) = (kind.name.clone(), kind.folder.path().join("kind.json"));
        drop(kind);
        let asked = fs::read_to_string(folder.path().join("asked")).unwrap();
        let [a, b] = archives.map(|archive| archive.display().to_string());
        let expected = [
            "version".to_owned(),
            format!("create cluster --config {} --wait {WAIT} --name {name}", config.display()),
            format!("load image-archive {a} --name {name}"),
            format!("load image-archive {b} --name {name}"),
            format!("delete cluster --name {name}"),
        ];
        assert_eq!(asked.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn without_kind_it_is_said_what_to_do() {
        let Err(error) = Kind::of("/nowhere/kind".into(), "kubectl".into(), &[]) else { panic!("there is none") };
        assert!(error.to_string().contains("TRISHANKU_E2E_CLUSTER=host"), "{error:#}");
    }
}
