//! `trishanku undo`, `trishanku restore` and `trishanku undelete`.
//!
//! [`gather`] finds the changes to revert in the branch, [`observe`] reads what exists now, `trishanku-undo` plans, [`trial`] asks
//! kube-apiserver what it would reject, and [`apply`] sends the steps.

mod api;
mod apply;
mod args;
mod branch;
mod commits;
mod gather;
mod observe;
mod print;
mod rejection;
mod scope;
mod trial;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use gitcd::history::commits::BranchCommit;
use gitcd::history::moment::Moment;
use gitcd::merge::schema::Schemas;
use serde_json::json;
use trishanku::plane::Home;
use trishanku_stdio::text::plain;
use trishanku_undo::{Live, Mode, Plan, Planner};

use self::api::Api;
use self::apply::{Applier, Done, Outcome};
use self::args::Common;
pub(crate) use self::args::{Restore, Undelete, Undo};
use self::branch::{Branch, Selected};
use self::gather::Found;
use self::scope::Scope;
use crate::objects::{self, Object};

/// Selects the control plane.
pub(crate) struct Place {
    pub(crate) home: Home,
    pub(crate) heaven: Option<String>,
    /// The command line that names it.
    pub(crate) program: String,
}

/// A control plane, connected, with its history up to now.
struct Session<'a> {
    options: &'a Common,
    selected: Selected,
    api: Api,
    branch: Branch,
    /// The command line that selects the control plane.
    program: String,
}

/// Undoes changes.
///
/// # Errors
/// The plan cannot be made. Steps that fail are printed, and make the exit code 1.
pub(crate) async fn undo(place: &Place, options: &Undo) -> anyhow::Result<ExitCode> {
    let (commits, words): (Vec<_>, Vec<_>) = options.words.iter().cloned().partition(|word| !word.contains('/'));
    match (&commits[..], options.since) {
        ([], None) => bail!("name commits, or give --since, such as --since=10m"),
        ([first, ..], Some(_)) => {
            bail!(
                "{first:?} is a commit, or an object without a kind: give either commits or --since, and objects as KIND/NAME"
            )
        }
        _ => {}
    }
    let session = Session::start(place, &options.common, &commits).await?;
    let since = options.since.map(|since| session.branch.history.at(since)).transpose()?;
    let scope = session.scope(&words, since.as_ref())?;
    let (branch, by) = (&session.branch, options.by.as_deref());
    let found = match (&since, by) {
        (Some(since), None) => gather::between(branch, since, &scope)?,
        (Some(since), by) => gather::of_commits(branch, &branch.history.commits_after(Some(since))?, by, &scope)?,
        (None, by) => {
            let commits = commits::find(&branch.history, &commits)?;
            if by.is_none() && words.is_empty() {
                warn_of_several_users(&commits);
            }
            gather::of_commits(branch, &commits, by, &scope)?
        }
    };
    session.run(found, Mode::Undo, since.as_ref()).await
}

/// Under load, a store makes one commit of the writes of several users.
fn warn_of_several_users(commits: &[BranchCommit]) {
    for (id, users) in gather::of_several_users(commits) {
        let users: Vec<String> = users.iter().map(|user| plain(user)).collect();
        trishanku_stdio::eprintln!(
            "commit {} has changes of {}; --by selects those of one user",
            &id[..10],
            users.join(", ")
        );
    }
}

/// Restores objects as they were.
///
/// # Errors
/// As [`undo`].
pub(crate) async fn restore(place: &Place, options: &Restore) -> anyhow::Result<ExitCode> {
    let session = Session::start(place, &options.common, &[]).await?;
    let then = session.branch.history.at(options.to)?;
    let scope = session.scope(&options.objects, Some(&then))?;
    let found = gather::between(&session.branch, &then, &scope)?;
    session.run(found, Mode::Restore { prune: options.prune }, Some(&then)).await
}

/// Brings deleted objects back.
///
/// # Errors
/// As [`undo`].
pub(crate) async fn undelete(place: &Place, options: &Undelete) -> anyhow::Result<ExitCode> {
    let session = Session::start(place, &options.common, &[]).await?;
    let since = options.since.map(|since| session.branch.history.at(since)).transpose()?;
    let scope = session.scope(&options.objects, since.as_ref())?;
    let found = match (&scope, &since) {
        (Scope::Keys(keys), None) => {
            if let Some(key) = keys.iter().find(|key| key.ends_with('/')) {
                bail!("name the objects in {key}, or give --since for all that were deleted since");
            }
            gather::deletions(&session.branch, keys)?
        }
        (scope, Some(since)) => gather::deleted_since(&session.branch, since, scope)?,
        (_, None) => bail!("name objects, or give --since, such as --since=10m"),
    };
    session.run(found, Mode::Undo, since.as_ref()).await
}

impl<'a> Session<'a> {
    /// Connects. The branch has everything that was written so far, or at least these commits if there are any.
    async fn start(place: &'a Place, options: &'a Common, commits: &[String]) -> anyhow::Result<Self> {
        let selected = Selected::find(place, &options.cluster)?;
        let kubeconfig = selected.kubeconfig();
        if kubeconfig.is_none() && !selected.is_of_kubectl() {
            bail!("this branch has no kube-apiserver; select another heaven with --heaven");
        }
        let secrets = options.secret_kinds.clone();
        let api = Api::connect(kubeconfig, options.cluster.context.as_deref(), secrets).await?;
        let revision = api.revision().await.context("cannot ask kube-apiserver for its revision")?;
        let mut branch = selected.open_now()?;
        let found = if commits.is_empty() { None } else { commits::find(&branch.history, commits).ok() };
        // What a Namespace contains may have been written a moment ago.
        if found.is_none_or(|found| found.iter().any(|commit| branch.creates_container(commit))) {
            branch = selected.open_settled(revision).await?;
        }
        check_identity(&api, &branch).await?;
        let heaven = place.heaven.as_ref().map(|heaven| format!(" --heaven {heaven}")).unwrap_or_default();
        let program = format!("{}{heaven}", place.program);
        Ok(Self { options, selected, api, branch, program })
    }

    /// Returns what the words on the command line select.
    fn scope(&self, words: &[String], moment: Option<&Moment>) -> anyhow::Result<Scope> {
        let moments: Vec<&Moment> = moment.into_iter().collect();
        let objects =
            if words.is_empty() { Vec::new() } else { objects::parse(words, || self.branch.kinds(&moments))? };
        let is_kind = |object: &&Object| object.name.is_none();
        if objects.iter().any(|object| is_kind(&object)) && self.options.namespace.is_none() {
            let named = objects.iter().find(is_kind).map(|object| object.kind.plural.clone()).unwrap_or_default();
            trishanku_stdio::eprintln!("only {named} in namespace default; give -n for another one");
        }
        Ok(Scope::new(&objects, self.options.namespace.as_deref()))
    }

    /// Plans, asks, and applies.
    async fn run(&self, found: Found, mode: Mode, moment: Option<&Moment>) -> anyhow::Result<ExitCode> {
        let moments: Vec<&Moment> = moment.into_iter().collect();
        let schemas = self.branch.schemas(&moments)?.with_secret_kinds(self.options.secret_kinds.clone());
        let (subjects, live) = observe::subjects(&self.api, &self.branch, found).await?;
        let planner = Planner { schemas: &schemas, secrets: &self.options.secret_kinds, live: &live };
        let plan = planner.plan(subjects, mode);
        if self.options.dry_run {
            return self.show(&plan).await;
        }
        if self.options.json && !self.options.yes {
            bail!("--json prints the plan only with --dry-run: give that, or --yes");
        }
        let mut out = trishanku_stdio::stdout();
        if !self.options.json {
            print::plan(&mut out, &plan, &BTreeMap::new(), self.options.whole)?;
            drop(out);
        }
        if plan.requests().next().is_some() && !self.options.yes && !is_confirmed(&plan)? {
            trishanku_stdio::println!("Nothing was changed");
            return Ok(ExitCode::FAILURE);
        }
        self.apply(&plan, &schemas, &live).await
    }

    /// Prints a plan with what kube-apiserver would reject.
    async fn show(&self, plan: &Plan) -> anyhow::Result<ExitCode> {
        let rejected = trial::run(&self.api, plan).await;
        let mut out = trishanku_stdio::stdout();
        if self.options.json {
            let json = json!({ "dryRun": true, "steps": print::to_json(plan, &rejected, &[]) });
            writeln!(out, "{json:#}")?;
        } else {
            print::plan(&mut out, plan, &rejected, self.options.whole)?;
        }
        let is_whole = rejected.is_empty() && plan.blocked().next().is_none();
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn apply(&self, plan: &Plan, schemas: &Schemas, live: &Live) -> anyhow::Result<ExitCode> {
        let Common { json, recreate, .. } = *self.options;
        let applier = Applier { api: &self.api, schemas, live, recreate, deletions: apply::deletions(plan) };
        let mut failed = Ok(());
        let outcomes = applier
            .apply(plan, |outcome| {
                if !json && failed.is_ok() {
                    // A closed standard output must not stop the steps halfway.
                    failed = print::outcome(&mut trishanku_stdio::stdout(), outcome);
                }
            })
            .await;
        let commits = if outcomes.is_empty() { Vec::new() } else { self.commits(&outcomes).await? };
        if json {
            let ids: Vec<String> = commits.iter().map(|commit| commit.commit.oid.to_string()).collect();
            let json =
                json!({ "dryRun": false, "steps": print::to_json(plan, &BTreeMap::new(), &outcomes), "commits": ids });
            writeln!(trishanku_stdio::plain_stdout(), "{json:#}")?;
        } else if let Some(hint) = self.hint(&commits, &outcomes)? {
            trishanku_stdio::println!("{hint}");
        }
        failed?;
        let is_whole = outcomes.iter().all(|outcome| outcome.result.is_ok()) && plan.blocked().next().is_none();
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Returns how to undo what was done.
    fn hint(&self, commits: &[BranchCommit], outcomes: &[Outcome]) -> anyhow::Result<Option<String>> {
        let others = commits::has_others(&self.branch, commits, outcomes)?;
        let hint = commits::hint(commits, &self.branch.tip, outcomes, others);
        let options = self.options.cluster.options();
        Ok(hint.map(|words| format!("To undo this: {} undo{options} {words}", self.program)))
    }

    /// Returns the commits that have the outcomes, newest first; none, with a message, if they are not made in time.
    async fn commits(&self, outcomes: &[Outcome]) -> anyhow::Result<Vec<BranchCommit>> {
        let revision = outcomes.iter().filter_map(|outcome| outcome.revision).max().unwrap_or_default();
        let deleted = outcomes.iter().filter(|outcome| matches!(outcome.result, Ok(Done::Deleted)));
        // What waits for a finalizer still exists.
        let deleted: Vec<&str> =
            deleted.filter(|outcome| outcome.revision.is_none()).map(|outcome| outcome.object.key.as_str()).collect();
        if let Some(now) = self.selected.open_with(revision, &deleted).await? {
            return commits::with(&now, &self.branch.tip, outcomes);
        }
        trishanku_stdio::eprintln!("the store has not committed this yet: see `{} log` for its commits", self.program);
        Ok(Vec::new())
    }
}

/// Checks that the kube-apiserver is that of the branch, by the uid of a namespace that every cluster has.
async fn check_identity(api: &Api, branch: &Branch) -> anyhow::Result<()> {
    const KEY: &str = "namespaces/kube-system";
    let Some(stored) = branch.object(KEY)? else { return Ok(()) };
    let identity = trishanku_undo::ObjectRef::of(KEY, &stored);
    let served = api.get(&identity).await?;
    if served.is_some_and(|served| !trishanku_undo::document::is_same(&served, &stored)) {
        bail!("the kubeconfig is that of another cluster than the repository; set --kubeconfig or --repo");
    }
    Ok(())
}

fn is_confirmed(plan: &Plan) -> anyhow::Result<bool> {
    let number = plan.requests().count();
    if !io::stdin().is_terminal() {
        bail!(
            "cannot ask whether to make {number} changes, since standard input is not a terminal: give --yes, or --dry-run"
        );
    }
    trishanku_stdio::eprint!("Make {number} changes? [y/N] ");
    io::stderr().flush().context("cannot write to the terminal")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
