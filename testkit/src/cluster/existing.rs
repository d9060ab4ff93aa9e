//! A cluster that something else started, such as kind, minikube or a cloud.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::Command;

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError, NamedContext};
use kube::{Client, Config};

use crate::error::StartError;
use crate::guard::Folder;
use crate::programs;

/// Label of the namespaces of a run, by which they are deleted.
pub(super) const RUN: &str = "testkit.trishanku.org/run";

pub(super) struct Existing {
    config: Config,
    /// Only the selected context.
    kubeconfig: Kubeconfig,
    /// Value of the label [`RUN`].
    pub(super) run: String,
    pub(super) folder: PathBuf,
    _folder: Folder,
}

// Kubeconfigs have credentials.
impl std::fmt::Debug for Existing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Existing")
            .field("server", &self.config.cluster_url)
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

impl Existing {
    /// Reads the context, or the current one, and asks the cluster for its version.
    pub(super) async fn connect(path: &Path, context: Option<&str>) -> Result<Self, StartError> {
        let failed = |source| StartError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
        let kubectl = programs::kubectl()?;
        let kubeconfig = Kubeconfig::read_from(path).and_then(|all| only(all, context)).map_err(failed)?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await.map_err(failed)?;
        // Tests need to see each response.
        config.default_retry = false;
        let client = Client::try_from(config.clone()).map_err(|error| StartError::Client(Box::new(error)))?;
        let unreachable =
            |source| StartError::Unreachable { url: config.cluster_url.to_string(), source: Box::new(source) };
        client.apiserver_version().await.map_err(unreachable)?;

        let run = format!("{:08x}", RandomState::new().hash_one(()) as u32);
        let folder = super::folder().map_err(StartError::System)?;
        let administrator = folder.join("kubeconfig");
        let mut delete = Command::new(kubectl);
        delete.arg(format!("--kubeconfig={}", administrator.display())).args(["delete", "namespaces", "--wait=false"]);
        delete.arg(format!("--selector={RUN}={run}"));
        let guard = Folder::guard_after(&folder, &delete).map_err(StartError::System)?;
        let existing = Self { config, kubeconfig, run, folder, _folder: guard };
        std::fs::write(administrator, existing.kubeconfig(None)).map_err(StartError::System)?;
        Ok(existing)
    }

    pub(super) fn config(&self) -> Config {
        self.config.clone()
    }

    /// Returns a kubeconfig as JSON, which is also YAML.
    pub(super) fn kubeconfig(&self, user: Option<&str>) -> String {
        let mut kubeconfig = self.kubeconfig.clone();
        if let Some(user) = user {
            for of_user in &mut kubeconfig.auth_infos {
                of_user.auth_info.get_or_insert_default().impersonate = Some(user.to_owned());
            }
        }
        serde_json::to_string(&kubeconfig).expect("a kubeconfig that was read can be written")
    }
}

/// Returns a kubeconfig with only this context, or the current one.
fn only(mut all: Kubeconfig, context: Option<&str>) -> Result<Kubeconfig, KubeconfigError> {
    let name =
        context.map(str::to_owned).or(all.current_context.take()).ok_or(KubeconfigError::CurrentContextNotSet)?;
    all.contexts.retain(|found| found.name == name);
    let [NamedContext { context: Some(chosen), .. }] = &all.contexts[..] else {
        return Err(KubeconfigError::LoadContext(name));
    };
    let (cluster, user) = (chosen.cluster.clone(), chosen.user.clone());
    all.clusters.retain(|found| found.name == cluster);
    all.auth_infos.retain(|found| Some(&found.name) == user.as_ref());
    all.current_context = Some(name);
    Ok(all)
}
