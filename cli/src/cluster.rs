//! Selects a cluster that `trishanku` did not bring up.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use gitcd::secrecy::SecretKinds;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use trishanku::plane::Home;
use trishanku_stdio::text::quoted;

use crate::location::Location;

/// Selects a cluster that `trishanku` did not bring up.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "A control plane of your own")]
pub(crate) struct Cluster {
    /// Repository of its gitcd, or a clone of it with the metadata references; selects the kubeconfig as kubectl does
    #[arg(long, env = "GITCD_REPO", value_name = "DIR")]
    pub(crate) repo: Option<PathBuf>,
    /// Reference of its data
    #[arg(long, value_name = "REF", default_value = "refs/heads/main", requires = "repo")]
    data_reference: String,
    /// Reference of its metadata [default: refs/gitcd/metadata/main, with the name of the data reference]
    #[arg(long, value_name = "REF", requires = "repo")]
    metadata_reference: Option<String>,
    /// Kubeconfig of its kube-apiserver [default: that of the control plane; with --repo, $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

impl Cluster {
    /// Finds the branch, and its kubeconfig unless that is selected as kubectl does.
    ///
    /// # Errors
    /// There is no such branch in the home, or no current folder.
    pub(crate) fn location(&self, home: &Home, heaven: Option<&str>) -> anyhow::Result<Location> {
        let Some(repository) = &self.repo else {
            let hint = "to use a control plane of your own, set --repo or GITCD_REPO";
            let mut location = Location::find(home, heaven).context(hint)?;
            location.kubeconfig = self.kubeconfig.clone().or(location.kubeconfig);
            return Ok(location);
        };
        let data = self.data_reference.clone();
        let short = data.strip_prefix("refs/heads/").unwrap_or(&data);
        let metadata = self.metadata_reference.clone().unwrap_or_else(|| format!("refs/gitcd/metadata/{short}"));
        let repository = std::path::absolute(repository).context("there is no current folder")?;
        Ok(Location { repository, data, metadata, kubeconfig: self.kubeconfig.clone() })
    }

    /// Returns the options that select this cluster, for a command line; each after a space.
    pub(crate) fn options(&self) -> String {
        let Self { repo, data_reference, metadata_reference, kubeconfig, context } = self;
        let word = |option: &str, value: &Path| format!(" {option} {}", quoted(value));
        let text = |option: &str, value: &str| word(option, Path::new(value));
        let repo =
            repo.as_deref().map(|repo| format!("{}{}", word("--repo", repo), text("--data-reference", data_reference)));
        let rest = [
            metadata_reference.as_deref().map(|name| text("--metadata-reference", name)),
            kubeconfig.as_deref().map(|file| word("--kubeconfig", file)),
            context.as_deref().map(|name| text("--context", name)),
        ];
        repo.into_iter().chain(rest.into_iter().flatten()).collect()
    }
}

/// Reads a kubeconfig; without one, that of kubectl.
///
/// # Errors
/// It cannot be read, or does not have the context.
pub(crate) async fn client_config(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Config> {
    let read = match kubeconfig {
        Some(path) => {
            Kubeconfig::read_from(path).with_context(|| format!("cannot use the kubeconfig {}", path.display()))?
        }
        None => Kubeconfig::read().context("cannot use the kubeconfig; set --kubeconfig")?,
    };
    let options = KubeConfigOptions { context: context.map(ToOwned::to_owned), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(read, &options).await.context("cannot use the kubeconfig")
}

/// Returns the option that hides kinds, for a command line, after a space; empty if none is hidden besides Secrets.
pub(crate) fn hiding_option(kinds: &SecretKinds) -> String {
    let kinds = kinds.to_string();
    if kinds.is_empty() { kinds } else { format!(" --secret-kinds {}", quoted(Path::new(&kinds))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_select_the_same_branch() {
        let mut cluster = Cluster {
            repo: None,
            data_reference: "refs/heads/main".into(),
            metadata_reference: None,
            kubeconfig: None,
            context: None,
        };
        assert_eq!(cluster.options(), "");
        cluster.repo = Some("/a b/store.git".into());
        cluster.context = Some("shop".into());
        assert_eq!(cluster.options(), " --repo '/a b/store.git' --data-reference refs/heads/main --context shop");
        let hiding = |kinds: &str| hiding_option(&kinds.parse().expect("they are kinds"));
        assert_eq!([hiding(""), hiding("example.org/*")], ["", " --secret-kinds 'example.org/*'"]);
    }
}
