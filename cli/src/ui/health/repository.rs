//! The health of a branch that `trishanku` did not bring up: what its repository has, and what its gitcd reports.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use futures::future::BoxFuture;
use gitcd::git::branch::Config;
use gitcd::history::History;
use http::StatusCode;
use trishanku::status::{HeavenReport, StoreStatus};
use trishanku_page::health::{Finding, Health, HealthReport};
use trishanku_service::endpoint::{Endpoint, TlsFiles};
use trishanku_service::error::chain;
use trishanku_service::http::Client;

use super::{apart, branch};

/// Limit for a whole request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Size limit of a response: a status has up to a hundred reasons of rejected files for each remote.
const MAX_BYTES: usize = 8 << 20;

/// Selects the gitcd of a control plane that `trishanku` did not bring up, as `gitcd status` does.
#[derive(Clone, Debug, Args)]
#[command(
    next_help_heading = "Its gitcd, for the page of its health",
    mut_arg("cacert", |cacert| cacert.help("CAs of its certificate (PEM file)"))
)]
pub(crate) struct Gitcd {
    /// URL of the served branch of --repo
    #[arg(long, env = "GITCD_ENDPOINT", value_name = "URL")]
    endpoint: Option<String>,
    #[command(flatten)]
    tls: TlsFiles,
}

impl Gitcd {
    /// Returns a client; `None` without a URL.
    fn client(&self) -> anyhow::Result<Option<Client>> {
        // With several, as gitcd status accepts, only one serves this branch.
        let Some(url) = self.endpoint.as_deref().and_then(|list| list.split(',').next()) else { return Ok(None) };
        let endpoint: Endpoint = url.parse().context("--endpoint")?;
        let tls = if endpoint.is_encrypted() { self.tls.config()? } else { None };
        let client = endpoint.client(tls).context("--endpoint")?;
        Ok(Some(client.within(TIMEOUT).at_most(MAX_BYTES).build()))
    }
}

/// The health of a branch in a repository.
pub(crate) struct RepositoryHealth {
    branch: Config,
    client: Option<Client>,
}

impl RepositoryHealth {
    /// # Errors
    /// The options of the gitcd are not usable.
    pub(crate) fn new(branch: Config, gitcd: &Gitcd) -> anyhow::Result<Self> {
        Ok(Self { branch, client: gitcd.client()? })
    }
}

impl Health for RepositoryHealth {
    fn report(&self) -> BoxFuture<'static, HealthReport> {
        let (config, client) = (self.branch.clone(), self.client.clone());
        apart(move || async move {
            let name = config.data_reference.strip_prefix("refs/heads/").unwrap_or(&config.data_reference).to_owned();
            let mut report = HeavenReport::of_repository(&name, config.repository.clone(), &config.data_reference);
            let mut problems = Vec::new();
            let is_asked = client.is_some();
            if let Some(client) = client {
                let status = ask(&client).await;
                problems.extend(mismatch(&status, &config.data_reference));
                report.add(status);
            }
            let mut health = branch::of(&report, None);
            (health.restarts, health.problems) = (None, [problems, health.problems].concat());
            match History::open(config, false) {
                Ok(history) => health.committed_revision = health.committed_revision.or(Some(history.revision())),
                Err(error) => health
                    .problems
                    .push(Finding { what: "the branch cannot be read".to_owned(), details: vec![error.to_string()] }),
            }
            if is_asked && report.status.is_none() {
                "not reachable".clone_into(&mut health.state.word);
            }
            health.state.is_good &= health.problems.iter().all(|problem| problem.what != MISMATCH);
            if !is_asked {
                let what = "the gitcd of this branch is not asked: start the page with --endpoint".to_owned();
                health.problems.push(Finding { what, details: Vec::new() });
            }
            HealthReport { state: Some(health.state.clone()), branches: vec![health], ..HealthReport::default() }
        })
    }
}

/// The problem of a gitcd that serves another branch.
const MISMATCH: &str = "the gitcd at --endpoint serves another branch";

fn mismatch(status: &StoreStatus, reference: &str) -> Option<Finding> {
    let other = status.branch.as_ref().ok().filter(|branch| branch.reference != reference)?;
    Some(Finding { what: MISMATCH.to_owned(), details: vec![other.reference.clone()] })
}

async fn ask(client: &Client) -> StoreStatus {
    let get = async |path: &str| {
        let answer = client.get(path).await.map_err(|error| chain(&error))?;
        match answer.status() {
            StatusCode::OK => Ok(answer.into_body()),
            status => Err(format!("it answers {status} for {path}: is it a gitcd?")),
        }
    };
    let (status, metrics) = tokio::join!(get("/status"), get("/metrics"));
    StoreStatus::read(status, metrics.ok())
}
