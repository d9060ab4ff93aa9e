//! Selects a cluster that `trishanku` did not bring up.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use gitcd::secrecy::SecretKinds;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use trishanku::plane::Home;

use crate::location::{Location, Own, option};

/// Selects a cluster that `trishanku` did not bring up.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "A control plane of your own")]
pub(crate) struct Cluster {
    #[command(flatten)]
    own: Own,
    /// Kubeconfig of its kube-apiserver [default: that of the control plane; with --repo, $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

impl Cluster {
    /// Returns whether `trishanku` did not bring it up: then its kubeconfig is selected as kubectl does.
    pub(crate) fn is_own(&self) -> bool {
        self.own.repo.is_some()
    }

    /// Finds the branch, and its kubeconfig unless that is selected as kubectl does.
    ///
    /// # Errors
    /// There is no such branch in the home, or no current folder.
    pub(crate) fn location(&self, home: &Home, heaven: Option<&str>) -> anyhow::Result<Location> {
        let mut location = self.own.location(home, heaven)?;
        location.kubeconfig = self.kubeconfig.clone().or(location.kubeconfig);
        Ok(location)
    }

    /// Returns the options that select this cluster, for a command line; each after a space.
    pub(crate) fn options(&self) -> String {
        let Self { own, kubeconfig, context } = self;
        let kubeconfig = kubeconfig.as_ref().map(|file| option("--kubeconfig", file));
        let context = context.as_ref().map(|name| option("--context", name));
        [Some(own.options()), kubeconfig, context].into_iter().flatten().collect()
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
    if kinds.is_empty() { kinds } else { option("--secret-kinds", &kinds) }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn the_options_select_the_same_branch() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            cluster: Cluster,
        }
        let parse = |words: &[&str]| Line::try_parse_from(words).expect("the options are known").cluster;
        let plain = parse(&["x", "--repo=store.git"]).options();
        assert_eq!(plain, " --repo store.git --data-reference refs/heads/main");
        let cluster = parse(&["x", "--repo=/a b/store.git", "--context=shop"]);
        assert_eq!(cluster.options(), " --repo '/a b/store.git' --data-reference refs/heads/main --context shop");
        let hiding = |kinds: &str| hiding_option(&kinds.parse().expect("they are kinds"));
        assert_eq!([hiding(""), hiding("example.org/*")], ["", " --secret-kinds 'example.org/*'"]);
    }
}
