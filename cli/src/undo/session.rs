//! A control plane, connected, with its history up to now: what all commands here plan and apply with.

use std::time::Duration;

use anyhow::{Context as _, bail};
use gitcd::history::commits::BranchCommit;
use gitcd::history::moment::Moment;
use gitcd::merge::schema::Schemas;
use gitcd::secrecy::SecretKinds;
use kube::client::ClientBuilder;
use kube::client::retry::RetryPolicy;
use kube::{Client, Config};
use tower::buffer::BufferLayer;
use tower::retry::RetryLayer;
use trishanku_undo::{Action, Live, Mode, ObjectRef, Plan, Planner, Step};

use super::api::Api;
use super::apply::{self, Applier, Done, Outcome};
use super::branch::Branch;
use super::gather::Found;
use super::selected::Selected;
use super::trial::{self, Tried};
use super::{Place, commits, dependents, observe};
use crate::cluster::{Cluster, client_config, hiding_option};
use crate::location::Location;

/// How long a response of kube-apiserver may take.
const TIMEOUT: Duration = Duration::from_mins(1);
/// How often a request is repeated that kube-apiserver cannot answer now: for a second and a half, or as long as it says.
const RETRIES: u32 = 5;
/// Requests that wait for one another to be sent.
const WAITING: usize = 64;
/// The warning for [`Identity::Forbidden`].
pub(super) const UNCHECKED: &str = "it is not known whether the repository is that of this kube-apiserver, since the user may not get the namespace kube-system";

/// A control plane, and the user who changes it. The kubeconfig is read once, so that all sessions have the same user.
pub(crate) struct Target {
    selected: Selected,
    client: Client,
    secrets: SecretKinds,
    /// The command line that selects the control plane: the program, and the options of `undo`.
    program: String,
    options: String,
}

impl Target {
    /// Selects what a command line names.
    pub(super) async fn find(place: &Place, cluster: &Cluster, secrets: &SecretKinds) -> anyhow::Result<Self> {
        let location = cluster.location(&place.home, place.heaven.as_deref())?;
        let kubeconfig = location.kubeconfig.clone();
        if kubeconfig.is_none() && !cluster.is_own() {
            bail!("this branch has no kube-apiserver; select another heaven with --heaven");
        }
        let config = client_config(kubeconfig.as_deref(), cluster.context.as_deref()).await?;
        Self::new(place, cluster, secrets, location, config)
    }

    /// Selects a branch that was found, and its kube-apiserver.
    ///
    /// # Errors
    /// The credentials cannot be used.
    pub(crate) fn new(
        place: &Place,
        cluster: &Cluster,
        secrets: &SecretKinds,
        location: Location,
        mut config: Config,
    ) -> anyhow::Result<Self> {
        config.read_timeout = Some(TIMEOUT);
        let client = connect(config).context("cannot use the credentials in the kubeconfig")?;
        let heaven = place.heaven.as_ref().map(|heaven| format!(" --heaven {heaven}")).unwrap_or_default();
        Ok(Self {
            selected: Selected::new(location, cluster.is_own()),
            client,
            secrets: secrets.clone(),
            program: format!("{}{heaven}", place.program),
            options: format!("{}{}", cluster.options(), hiding_option(secrets)),
        })
    }

    /// Returns the command line of an undo, up to what it undoes.
    pub(crate) fn command(&self) -> String {
        format!("{} undo{}", self.program, self.options)
    }
}

/// Creates a client that repeats requests for seconds, and not for minutes as that of kube: the server of an aggregated API may be
/// away for good.
fn connect(mut config: Config) -> anyhow::Result<Client> {
    config.default_retry = false;
    let policy = RetryPolicy::new(Duration::from_millis(50), Duration::from_secs(2), RETRIES, true)?;
    let builder = ClientBuilder::try_from(config)?;
    // Only what can be cloned can be repeated.
    let builder = builder.with_layer(&BufferLayer::new(WAITING)).with_layer(&RetryLayer::new(policy));
    Ok(builder.build())
}

/// A control plane, connected, with its history up to now.
pub(super) struct Session<'a> {
    pub(super) branch: Branch,
    target: &'a Target,
    api: Api,
    /// Whether it is known that kube-apiserver is that of the branch.
    pub(super) identity: Identity,
}

/// Whether kube-apiserver is that of the branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// It is.
    Same,
    /// The branch does not show it.
    Unknown,
    /// The user may not read what shows it.
    Forbidden,
}

/// A plan, and what its steps need to be applied.
pub(super) struct Planned {
    pub(super) plan: Plan,
    schemas: Schemas,
    live: Live,
}

impl<'a> Session<'a> {
    /// Connects. The branch has everything that was written so far, or at least these commits if there are any.
    pub(super) async fn start(target: &'a Target, commits: &[String]) -> anyhow::Result<Self> {
        let (selected, api) = (&target.selected, Api::new(target.client.clone(), target.secrets.clone()));
        let revision = api.revision().await.context("cannot ask kube-apiserver for its revision")?;
        let mut branch = selected.open_now()?;
        let found = if commits.is_empty() { None } else { branch.history.find_commits(commits).ok() };
        // What a Namespace contains may have been written a moment ago.
        if found.is_none_or(|found| found.iter().any(|found| branch.creates_container(&found.commit))) {
            branch = selected.open_settled(revision).await?;
        }
        let identity = identify(&api, &branch).await?;
        Ok(Self { branch, target, api, identity })
    }

    /// Plans to revert changes.
    pub(super) async fn plan(&self, found: Found, mode: Mode, moment: Option<&Moment>) -> anyhow::Result<Planned> {
        let moments: Vec<&Moment> = moment.into_iter().collect();
        let schemas = self.branch.schemas(&moments)?.with_secret_kinds(self.target.secrets.clone());
        let (subjects, live) = observe::subjects(&self.api, &self.branch, found).await?;
        let planner = Planner { schemas: &schemas, secrets: &self.target.secrets, live: &live };
        let mut plan = planner.plan(subjects, mode);
        dependents::add(&self.branch, &mut plan, |step| matches!(step.action, Action::Delete { .. }))?;
        Ok(Planned { plan, schemas, live })
    }

    /// Returns what kube-apiserver would answer to the steps of a plan.
    pub(super) async fn tried(&self, plan: &Plan, recreate: bool) -> Tried {
        trial::run(&self.api, plan, recreate).await
    }

    /// Adds a note to each step that deletes and creates its object, which only kube-apiserver knows.
    pub(super) fn note_recreations(&self, plan: &mut Plan, tried: &Tried) -> anyhow::Result<()> {
        let is_recreated = |step: &Step| tried.recreated.contains(&step.object.key);
        for step in plan.steps.iter_mut().filter(|step| is_recreated(step)) {
            step.notes.push("fields that cannot be changed differ, so it is deleted and created again".to_owned());
        }
        dependents::add(&self.branch, plan, is_recreated)
    }

    /// Sends the steps of a plan. Calls `report` for each outcome.
    pub(super) async fn apply(
        &self,
        Planned { plan, schemas, live }: &Planned,
        recreate: bool,
        report: impl FnMut(&Outcome),
    ) -> Vec<Outcome> {
        let applier = Applier { api: &self.api, schemas, live, recreate, deletions: apply::deletions(plan) };
        applier.apply(plan, report).await
    }

    /// Returns the commits that have the outcomes, newest first; none, with a message, if they are not made in time.
    pub(super) async fn commits(&self, outcomes: &[Outcome]) -> anyhow::Result<Vec<BranchCommit>> {
        if outcomes.is_empty() {
            return Ok(Vec::new());
        }
        let revision = outcomes.iter().filter_map(|outcome| outcome.revision).max().unwrap_or_default();
        let deleted = outcomes.iter().filter(|outcome| matches!(outcome.result, Ok(Done::Deleted)));
        // What waits for a finalizer still exists.
        let deleted: Vec<&str> =
            deleted.filter(|outcome| outcome.revision.is_none()).map(|outcome| outcome.object.key.as_str()).collect();
        if let Some(now) = self.target.selected.open_with(revision, &deleted).await? {
            return commits::with(&now, &self.branch.tip, outcomes);
        }
        trishanku_stdio::eprintln!(
            "the store has not committed this yet: see `{} log` for its commits",
            self.target.program
        );
        Ok(Vec::new())
    }

    /// Returns whether the commits have changes of other objects than those of an undo.
    pub(super) fn has_others(&self, commits: &[BranchCommit], outcomes: &[Outcome]) -> anyhow::Result<bool> {
        commits::has_others(&self.branch, commits, outcomes)
    }

    /// Returns the command line that undoes what was done.
    pub(super) fn hint(&self, commits: &[BranchCommit], outcomes: &[Outcome]) -> anyhow::Result<Option<String>> {
        let others = self.has_others(commits, outcomes)?;
        let hint = commits::hint(commits, &self.branch.tip, outcomes, others);
        let is_recreated = outcomes.iter().any(|outcome| matches!(outcome.result, Ok(Done::Recreated)));
        let option = if is_recreated { " --recreate" } else { "" };
        Ok(hint.map(|words| format!("{}{option} {words}", self.target.command())))
    }

    /// Returns the command line that undoes a commit with the deletion and creation of objects; with objects, only its changes of
    /// these. `None` if no command line of a sensible length selects them.
    pub(super) fn recreation(&self, commit: &str, objects: Option<&[&ObjectRef]>) -> Option<String> {
        let objects = match objects {
            Some(objects) => format!(" {}", commits::selection(objects)?),
            None => String::new(),
        };
        Some(format!("{} --recreate {}{objects}", self.target.command(), commit.get(..10).unwrap_or(commit)))
    }
}

/// Compares the uid of a namespace that every cluster has.
async fn identify(api: &Api, branch: &Branch) -> anyhow::Result<Identity> {
    const KEYS: [&str; 2] = ["namespaces/kube-system", "namespaces/default"];
    let mut identity = Identity::Unknown;
    for key in KEYS {
        let Some(stored) = branch.object(key)? else { continue };
        let object = trishanku_undo::ObjectRef::of(key, &stored);
        let served = match api.get(&object).await {
            Err(error) if error.code() == 403 => {
                identity = Identity::Forbidden;
                continue;
            }
            served => served?,
        };
        if served.is_some_and(|served| !trishanku_undo::document::is_same(&served, &stored)) {
            bail!("the kubeconfig is that of another cluster than the repository; set --kubeconfig or --repo");
        }
        return Ok(Identity::Same);
    }
    Ok(identity)
}
