//! `trishanku ui`: a local web page on the history of the branch.

mod health;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use futures::FutureExt as _;
use gitcd::git::branch::Config as Branch;
use gitcd::keyspace::KeySpace;
use gitcd::merge::secrecy::SecretKinds;
use kube::{Client, Config};
use tokio::sync::oneshot;
use tokio::time::timeout;
use trishanku_page::health::Health;
use trishanku_page::rights::{AccessReviews, Rights, UnrestrictedRights};
use trishanku_page::{Catalog, Page, Services, Settings};

use self::health::{PlaneHealth, RepositoryHealth};
use crate::cluster::{self, Cluster, hiding_option};
use crate::location::Location;
use crate::stops;
use crate::undo::{PageUndo, Place, Target};

/// Where kube-apiserver stores each kind.
const KINDS: &str = include_str!("kinds/builtin.txt");
/// How long kube-apiserver may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the response with the outcome of an undo may take at a stop.
const OUTCOME: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku ui                                    the branch of the desk
  trishanku --heaven kube-scheduler ui            that of another heaven
  trishanku ui --listen=127.0.0.1:8080            a fixed port, such as for `ssh -L 8080:127.0.0.1:8080`
  trishanku ui --repo=store.git --no-review       a repository without its kube-apiserver

Prints a URL that logs one browser in. Ctrl-C stops the page. It hides the values of Secrets, and changes nothing but by its undo,
after a preview. Objects are shown, and changed, if kube-apiserver allows the user of the kubeconfig to do so.")]
pub(crate) struct Ui {
    /// Address of this machine; port 0 is any free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Show all objects without a check of rights, as the files of the repository do
    #[arg(long, conflicts_with_all = ["kubeconfig", "context"])]
    no_review: bool,
    /// Offer no undo
    #[arg(long)]
    read_only: bool,
    /// Kinds that are hidden like Secrets, such as example.org/Vault,ConfigMap
    #[arg(long, env = "GITCD_SECRET_KINDS", default_value = "", hide_default_value = true, value_name = "KINDS")]
    secret_kinds: SecretKinds,
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    gitcd: health::Gitcd,
}

/// Serves the page until it is stopped.
///
/// # Errors
/// There is no branch, no kubeconfig, or the address cannot be used.
pub(crate) async fn run(place: Place, options: &Ui) -> anyhow::Result<ExitCode> {
    let Ui { listen, secret_kinds, cluster, .. } = options;
    let location = cluster.location(&place.home, place.heaven.as_deref())?;
    let config = client_config(options, &location).await?;
    let rights = rights(config.clone())?;
    let heaven = place.heaven.as_ref().map(|heaven| format!(" --heaven {heaven}")).unwrap_or_default();
    let undo_command = format!("{}{heaven} undo{}{}", place.program, cluster.options(), hiding_option(secret_kinds));
    let settings = Settings {
        branch: Branch {
            data_reference: location.data.clone(),
            metadata_reference: location.metadata.clone(),
            keys: KeySpace::new("/registry", [""; 0]),
            ..Branch::named(location.repository.clone(), "default")
        },
        find_prefix: cluster.is_own(),
        catalog: Catalog::parse(KINDS)?,
        secret_kinds: secret_kinds.clone(),
        undo_command,
    };
    let health: Arc<dyn Health> = if cluster.is_own() {
        Arc::new(RepositoryHealth::new(settings.branch.clone(), &options.gitcd)?)
    } else {
        Arc::new(PlaneHealth::of(&place.home))
    };
    let undo = match config.filter(|_| !options.read_only) {
        // With the same user as the rights, whatever happens to the kubeconfig meanwhile.
        Some(config) => Some(PageUndo::new(Target::new(&place, cluster, secret_kinds, location, config)?)),
        None => None,
    };
    let services = Services { rights, undo: undo.clone().map(|undo| Arc::new(undo) as _), health: Some(health) };
    let page = Page::bind(settings, services, *listen).await?;
    trishanku_stdio::println!("{}", page.url());
    trishanku_stdio::eprintln!("Open this URL in one browser; it works once. Ctrl-C stops the page.");
    serve(page, undo).await?;
    Ok(ExitCode::SUCCESS)
}

/// Serves the page until it is stopped; then waits for an undo that is in progress, and until its outcome is sent.
async fn serve(page: Page, undo: Option<PageUndo>) -> anyhow::Result<()> {
    let mut requests = stops::requests(false)?;
    let (stop, stopped) = oneshot::channel();
    let mut serving = Box::pin(page.serve_until(stopped.map(drop)));
    tokio::select! {
        served = &mut serving => return served.context("the page stopped"),
        _stop = requests.recv() => {}
    }
    let Some(undo) = undo.filter(PageUndo::close) else { return Ok(()) };
    trishanku_stdio::eprintln!("An undo is in progress; waiting for it to finish. Press Ctrl-C again to abort it.");
    tokio::select! {
        served = &mut serving => return served.context("the page stopped"),
        () = undo.idle() => {}
        _stop = requests.recv() => return Ok(()),
    }
    let _sent = stop.send(());
    // A page that is open holds its connection.
    timeout(OUTCOME, serving).await.unwrap_or(Ok(())).context("the page stopped")
}

/// Returns how to connect to kube-apiserver as the user of the kubeconfig; `None` if rights are not checked.
async fn client_config(options: &Ui, location: &Location) -> anyhow::Result<Option<Config>> {
    let cluster = &options.cluster;
    let context = &cluster.context;
    if options.no_review {
        return Ok(None);
    }
    if location.kubeconfig.is_none() && !cluster.is_own() {
        if context.is_some() {
            bail!("this branch has no kube-apiserver, so --context cannot decide what is shown; set --kubeconfig");
        }
        trishanku_stdio::eprintln!("this branch has no kube-apiserver: access rights are not checked");
        return Ok(None);
    }
    let hint =
        "cannot find the user whose rights decide what is shown; set --kubeconfig, or --no-review to show everything";
    let config = cluster::client_config(location.kubeconfig.as_deref(), context.as_deref()).await;
    config.map(Some).context(hint)
}

/// Returns how rights are checked. A branch of a heaven without a kube-apiserver has no rights but those of its files.
fn rights(config: Option<Config>) -> anyhow::Result<Arc<dyn Rights>> {
    let Some(mut config) = config else { return Ok(Arc::new(UnrestrictedRights)) };
    (config.connect_timeout, config.read_timeout) = (Some(TIMEOUT), Some(TIMEOUT));
    let client = Client::try_from(config).context("cannot use the credentials in the kubeconfig")?;
    Ok(Arc::new(AccessReviews::new(client)))
}
