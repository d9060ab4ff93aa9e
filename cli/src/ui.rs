//! `trishanku ui`: a local web page on the history of the branch.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use gitcd::git::branch::Config as Branch;
use gitcd::keyspace::KeySpace;
use gitcd::merge::secrecy::SecretKinds;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use trishanku::plane::Home;
use trishanku_page::rights::{AccessReviews, Rights, UnrestrictedRights};
use trishanku_page::{Catalog, Page, Settings};
use trishanku_stdio::text::quoted;

use crate::location::Location;
use crate::stops;

/// Where kube-apiserver stores each kind.
const KINDS: &str = include_str!("kinds/builtin.txt");
/// How long kube-apiserver may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku ui                                    the branch of the desk
  trishanku --heaven kube-scheduler ui            that of another heaven
  trishanku ui --listen=127.0.0.1:8080            a fixed port, such as for `ssh -L 8080:127.0.0.1:8080`
  trishanku ui --repo=store.git --no-review       a repository without its kube-apiserver

Prints a URL that logs one browser in. Ctrl-C stops the page. It changes nothing, and hides the values of Secrets.
Objects are shown if kube-apiserver allows the user of the kubeconfig to get them.")]
pub(crate) struct Ui {
    /// Address of this machine; port 0 is any free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Show all objects without a check of rights, as the files of the repository do
    #[arg(long, conflicts_with_all = ["kubeconfig", "context"])]
    no_review: bool,
    /// Kinds that are hidden like Secrets, such as example.org/Vault,ConfigMap
    #[arg(long, env = "GITCD_SECRET_KINDS", default_value = "", hide_default_value = true, value_name = "KINDS")]
    secret_kinds: SecretKinds,
    #[command(flatten)]
    cluster: Cluster,
}

/// Selects a cluster that `trishanku` did not bring up.
#[derive(Debug, Args)]
#[command(next_help_heading = "A control plane of your own")]
struct Cluster {
    /// Repository of its gitcd, or a clone of it with the metadata references; selects the kubeconfig as kubectl does
    #[arg(long, env = "GITCD_REPO", value_name = "DIR")]
    repo: Option<PathBuf>,
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
    context: Option<String>,
}

/// Serves the page until it is stopped.
///
/// # Errors
/// There is no branch, no kubeconfig, or the address cannot be used.
pub(crate) async fn run(home: &Home, heaven: Option<&str>, options: &Ui, program: &str) -> anyhow::Result<ExitCode> {
    let Ui { listen, secret_kinds, cluster, .. } = options;
    let location = cluster.location(home, heaven)?;
    let rights = rights(options, &location).await?;
    let settings = Settings {
        branch: Branch {
            data_reference: location.data.clone(),
            metadata_reference: location.metadata.clone(),
            keys: KeySpace::new("/registry", [""; 0]),
            ..Branch::named(location.repository.clone(), "default")
        },
        find_prefix: cluster.repo.is_some(),
        catalog: Catalog::parse(KINDS)?,
        secret_kinds: secret_kinds.clone(),
        undo: undo(program, heaven, cluster),
    };
    let page = Page::bind(settings, rights, *listen).await?;
    let mut requests = stops::requests(false)?;
    trishanku_stdio::println!("{}", page.url());
    trishanku_stdio::eprintln!("Open this URL in one browser; it works once. Ctrl-C stops the page.");
    tokio::select! {
        served = page.serve() => served.context("the page stopped")?,
        _stop = requests.recv() => {}
    }
    Ok(ExitCode::SUCCESS)
}

impl Cluster {
    /// Finds the branch, and its kubeconfig unless that is selected as kubectl does.
    fn location(&self, home: &Home, heaven: Option<&str>) -> anyhow::Result<Location> {
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
}

/// Returns how rights are checked. A branch of a heaven without a kube-apiserver has no rights but those of its files.
async fn rights(options: &Ui, location: &Location) -> anyhow::Result<Arc<dyn Rights>> {
    let Cluster { repo, context, .. } = &options.cluster;
    if options.no_review {
        return Ok(Arc::new(UnrestrictedRights));
    }
    if location.kubeconfig.is_none() && repo.is_none() {
        if context.is_some() {
            bail!("this branch has no kube-apiserver, so --context cannot decide what is shown; set --kubeconfig");
        }
        trishanku_stdio::eprintln!("this branch has no kube-apiserver: access rights are not checked");
        return Ok(Arc::new(UnrestrictedRights));
    }
    let hint = "cannot use the kubeconfig, whose user's rights decide what is shown; set --kubeconfig, or --no-review to show everything";
    let read = match &location.kubeconfig {
        Some(path) => Kubeconfig::read_from(path).with_context(|| format!("{}: {hint}", path.display()))?,
        None => Kubeconfig::read().context(hint)?,
    };
    let selection = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
    let mut config = Config::from_custom_kubeconfig(read, &selection).await.context(hint)?;
    (config.connect_timeout, config.read_timeout) = (Some(TIMEOUT), Some(TIMEOUT));
    let client = Client::try_from(config).context("cannot use the credentials in the kubeconfig")?;
    Ok(Arc::new(AccessReviews::new(client)))
}

/// Returns the command line that reverts a commit of the branch, up to its ID.
fn undo(program: &str, heaven: Option<&str>, cluster: &Cluster) -> String {
    let Cluster { repo, data_reference, metadata_reference, kubeconfig, context } = cluster;
    let text = |option: &'static str, value: Option<&str>| (option, value.map(PathBuf::from));
    let options = [
        text("--heaven", heaven),
        ("--repo", repo.clone()),
        text("--data-reference", repo.is_some().then_some(data_reference)),
        text("--metadata-reference", metadata_reference.as_deref()),
        ("--kubeconfig", kubeconfig.clone()),
        text("--context", context.as_deref()),
    ];
    let given = options.iter().filter_map(|(option, value)| Some(format!(" {option} {}", quoted(value.as_deref()?))));
    format!("{program} undo{}", given.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_undo_a_commit_selects_the_same_branch() {
        let mut cluster = Cluster {
            repo: None,
            data_reference: "refs/heads/main".into(),
            metadata_reference: None,
            kubeconfig: None,
            context: None,
        };
        assert_eq!(undo("trishanku --name b", Some("desk"), &cluster), "trishanku --name b undo --heaven desk");
        cluster.repo = Some("/a b/store.git".into());
        let line = undo("trishanku", None, &cluster);
        assert_eq!(line, "trishanku undo --repo '/a b/store.git' --data-reference refs/heads/main");
    }
}
