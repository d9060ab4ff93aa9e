//! Where the branch of a control plane is.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use trishanku::headless::DESK;
use trishanku::plane::state::{Form, Store};
use trishanku::plane::{Home, State};
use trishanku_stdio::text::quoted;

/// Selects a branch that `trishanku` did not bring up.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "A control plane of your own")]
pub(crate) struct Own {
    /// Repository of its gitcd, or a clone of it with the metadata references
    #[arg(long, env = "GITCD_REPO", value_name = "DIR")]
    pub(crate) repo: Option<PathBuf>,
    /// Reference of its data
    #[arg(long, value_name = "REF", default_value = "refs/heads/main", requires = "repo")]
    data_reference: String,
    /// Reference of its metadata [default: refs/gitcd/metadata/main, with the name of the data reference]
    #[arg(long, value_name = "REF", requires = "repo")]
    metadata_reference: Option<String>,
}

impl Own {
    /// Finds the branch: that of the repository, or without one that of the home.
    ///
    /// # Errors
    /// There is no such branch in the home, or no current folder.
    pub(crate) fn location(&self, home: &Home, heaven: Option<&str>) -> anyhow::Result<Location> {
        let Some(repository) = &self.repo else {
            return Location::find(home, heaven)
                .context("to use a control plane of your own, set --repo or GITCD_REPO");
        };
        if let Some(heaven) = heaven {
            bail!("--heaven={heaven} and --repo (or GITCD_REPO) select two branches: give one of them");
        }
        let repository = std::path::absolute(repository).context("there is no current folder")?;
        let data = self.data_reference.clone();
        let metadata = self.metadata_reference.clone().unwrap_or_else(|| metadata_of(&data));
        Ok(Location { repository, data, metadata, kubeconfig: None })
    }

    /// Returns the options that select this branch, for a command line; each after a space.
    pub(crate) fn options(&self) -> String {
        let Self { repo, data_reference, metadata_reference } = self;
        let repo = repo
            .as_ref()
            .map(|repo| format!("{}{}", option("--repo", repo), option("--data-reference", data_reference)));
        let metadata = metadata_reference.as_ref().map(|name| option("--metadata-reference", name));
        repo.into_iter().chain(metadata).collect()
    }
}

/// Returns an option with its value, for a command line, after a space.
pub(crate) fn option(name: &str, value: impl AsRef<Path>) -> String {
    format!(" {name} {}", quoted(value.as_ref()))
}

/// Returns the usual reference of a branch's metadata.
fn metadata_of(data: &str) -> String {
    format!("refs/gitcd/metadata/{}", data.strip_prefix("refs/heads/").unwrap_or(data))
}

/// The references of a branch, and the kubeconfig of its kube-apiserver.
pub(crate) struct Location {
    pub(crate) repository: PathBuf,
    pub(crate) data: String,
    pub(crate) metadata: String,
    /// The administrator's kubeconfig; `None` if the branch has no kube-apiserver.
    pub(crate) kubeconfig: Option<PathBuf>,
}

impl Location {
    /// Finds the branch of the given heaven; without one, that of the desk, or of the first heaven with a kube-apiserver.
    ///
    /// # Errors
    /// There is no such heaven, no repository yet, or the control plane has no history.
    pub(crate) fn find(home: &Home, heaven: Option<&str>) -> anyhow::Result<Self> {
        let state = State::load(&home.state_file())?;
        let is_first = |name: &str| state.heavens.iter().find(|heaven| heaven.name == name);
        let record = match heaven {
            Some(name) => Some(crate::kubectl::heaven(&state, name)?),
            None => is_first(DESK)
                .or_else(|| state.heavens.iter().find(|heaven| heaven.kubeconfig.is_some()))
                .or(state.heavens.first())
                .cloned(),
        };
        let location = match record {
            Some(record) => {
                let metadata = record.metadata.unwrap_or_else(|| metadata_of(&record.branch));
                let (repository, kubeconfig) = (record.repository, record.kubeconfig);
                Self { repository, data: record.branch, metadata, kubeconfig }
            }
            None if state.settings.store == Store::Etcd && state.settings.form == Form::Central => {
                bail!("this control plane is on etcd, which keeps no history")
            }
            None => Self {
                repository: home.repository(),
                data: "refs/heads/main".to_owned(),
                metadata: "refs/gitcd/metadata/main".to_owned(),
                kubeconfig: Some(home.kubeconfig()),
            },
        };
        if !location.repository.exists() {
            bail!("there is no repository in {} yet", home.dir().display());
        }
        Ok(location)
    }
}
