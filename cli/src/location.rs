//! Where the branch of a control plane is.

use std::path::PathBuf;

use anyhow::bail;
use trishanku::headless::DESK;
use trishanku::plane::state::{Form, Store};
use trishanku::plane::{Home, State};

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
                let short = record.branch.strip_prefix("refs/heads/").unwrap_or(&record.branch);
                let metadata = record.metadata.unwrap_or_else(|| format!("refs/gitcd/metadata/{short}"));
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
