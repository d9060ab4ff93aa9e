//! `trishanku undo`, `trishanku restore` and `trishanku undelete`.
//!
//! [`gather`] finds the changes to revert in the branch, [`observe`] reads what exists now, `trishanku-undo` plans, [`trial`] asks
//! kube-apiserver what it would reject, and [`apply`] sends the steps.

mod api;
mod apply;
mod args;
mod branch;
mod commits;
mod dependents;
mod gather;
mod merged;
mod observe;
mod page;
mod print;
mod rejection;
mod scope;
mod selected;
mod session;
mod trial;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use gitcd::history::find::FoundCommit;
use gitcd::history::moment::Moment;
use serde_json::json;
use trishanku::plane::Home;
use trishanku_stdio::text::plain;
use trishanku_undo::{Mode, Plan};

use self::apply::Outcome;
use self::args::Common;
pub(crate) use self::args::{Restore, Undelete, Undo};
use self::gather::Found;
pub(crate) use self::page::PageUndo;
use self::scope::Scope;
pub(crate) use self::session::Target;
use self::session::{Identity, Planned, Session, UNCHECKED};
use self::trial::Tried;
use crate::objects::{self, Object};

/// Selects the control plane.
pub(crate) struct Place {
    pub(crate) home: Home,
    pub(crate) heaven: Option<String>,
    /// The command line that names it.
    pub(crate) program: String,
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
    let target = options.common.target(place).await?;
    let running = Running::start(&target, &options.common, &commits).await?;
    let since = options.since.map(|since| running.session.branch.history.at(since)).transpose()?;
    let scope = running.scope(&words, since.as_ref())?;
    let (branch, by) = (&running.session.branch, options.by.as_deref());
    let found = match (&since, by) {
        (Some(since), None) => gather::between(branch, since, &scope)?,
        (Some(since), by) => {
            let commits = branch.history.commits_after(Some(since))?.into_iter();
            let commits: Vec<_> = commits.map(|commit| FoundCommit { commit, merge: None }).collect();
            gather::of_commits(branch, &commits, by, &scope)?
        }
        (None, by) => {
            let commits = branch.history.find_commits(&commits)?;
            if by.is_none() && words.is_empty() {
                warn_of_several_users(&commits);
            }
            gather::of_commits(branch, &commits, by, &scope)?
        }
    };
    running.run(found, &scope, Mode::Undo, since.as_ref()).await
}

/// Under load, a store makes one commit of the writes of several users.
fn warn_of_several_users(commits: &[FoundCommit]) {
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
    let target = options.common.target(place).await?;
    let running = Running::start(&target, &options.common, &[]).await?;
    let then = running.session.branch.history.at(options.to)?;
    let scope = running.scope(&options.objects, Some(&then))?;
    let found = gather::between(&running.session.branch, &then, &scope)?;
    running.run(found, &scope, Mode::Restore { prune: options.prune }, Some(&then)).await
}

/// Brings deleted objects back.
///
/// # Errors
/// As [`undo`].
pub(crate) async fn undelete(place: &Place, options: &Undelete) -> anyhow::Result<ExitCode> {
    let target = options.common.target(place).await?;
    let running = Running::start(&target, &options.common, &[]).await?;
    let since = options.since.map(|since| running.session.branch.history.at(since)).transpose()?;
    let scope = running.scope(&options.objects, since.as_ref())?;
    let found = match (&scope, &since) {
        (Scope::Keys(keys), None) => {
            if let Some(key) = keys.iter().find(|key| key.ends_with('/')) {
                bail!("name the objects in {key}, or give --since for all that were deleted since");
            }
            gather::deletions(&running.session.branch, keys)?
        }
        (scope, Some(since)) => gather::deleted_since(&running.session.branch, since, scope)?,
        (_, None) => bail!("name objects, or give --since, such as --since=10m"),
    };
    running.run(found, &scope, Mode::Undo, since.as_ref()).await
}

impl Common {
    async fn target(&self, place: &Place) -> anyhow::Result<Target> {
        Target::find(place, &self.cluster, &self.secret_kinds).await
    }
}

/// A command, with the session in which it runs.
struct Running<'a> {
    options: &'a Common,
    session: Session<'a>,
}

impl<'a> Running<'a> {
    async fn start(target: &'a Target, options: &'a Common, commits: &[String]) -> anyhow::Result<Self> {
        let session = Session::start(target, commits).await?;
        if session.identity == Identity::Forbidden {
            trishanku_stdio::eprintln!("warning: {UNCHECKED}");
        }
        Ok(Self { options, session })
    }

    /// Returns what the words on the command line select.
    fn scope(&self, words: &[String], moment: Option<&Moment>) -> anyhow::Result<Scope> {
        let moments: Vec<&Moment> = moment.into_iter().collect();
        let kinds = || self.session.branch.kinds(&moments);
        let objects = if words.is_empty() { Vec::new() } else { objects::parse(words, kinds)? };
        let is_kind = |object: &&Object| object.name.is_none();
        if objects.iter().any(|object| is_kind(&object)) && self.options.namespace.is_none() {
            let named = objects.iter().find(is_kind).map(|object| object.kind.plural.clone()).unwrap_or_default();
            trishanku_stdio::eprintln!("only {named} in namespace default; give -n for another one");
        }
        Ok(Scope::new(&objects, self.options.namespace.as_deref()))
    }

    /// Plans, asks, and applies.
    async fn run(&self, found: Found, scope: &Scope, mode: Mode, moment: Option<&Moment>) -> anyhow::Result<ExitCode> {
        // A misspelt name must not look like an object that is as it should be.
        for unchanged in scope.without_changes(|key| found.contains_key(key), found.is_empty()) {
            trishanku_stdio::eprintln!("{} has no changes in the selected history", plain(&unchanged));
        }
        let Common { recreate, dry_run, .. } = *self.options;
        let mut planned = self.session.plan(found, mode, moment).await?;
        let tried =
            if recreate || dry_run { self.session.tried(&planned.plan, recreate).await } else { Tried::default() };
        self.session.note_recreations(&mut planned.plan, &tried)?;
        let plan = &planned.plan;
        if dry_run {
            return self.show(plan, &tried.rejected);
        }
        if self.options.json && !self.options.yes {
            bail!("--json prints the plan only with --dry-run: give that, or --yes");
        }
        let mut out = trishanku_stdio::stdout();
        if !self.options.json {
            print::plan(&mut out, plan, &BTreeMap::new(), self.options.whole)?;
            drop(out);
        }
        if plan.requests().next().is_some() && !self.options.yes && !is_confirmed(plan)? {
            trishanku_stdio::println!("Nothing was changed");
            return Ok(ExitCode::FAILURE);
        }
        self.apply(&planned).await
    }

    /// Prints a plan with what kube-apiserver would reject.
    fn show(&self, plan: &Plan, rejected: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
        let mut out = trishanku_stdio::stdout();
        if self.options.json {
            let json = json!({ "dryRun": true, "steps": print::to_json(plan, rejected, &[]) });
            writeln!(out, "{json:#}")?;
        } else {
            print::plan(&mut out, plan, rejected, self.options.whole)?;
        }
        let is_whole = rejected.is_empty() && plan.blocked().next().is_none();
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn apply(&self, planned: &Planned) -> anyhow::Result<ExitCode> {
        let Common { json, recreate, .. } = *self.options;
        let plan = &planned.plan;
        let mut failed = Ok(());
        let report = |outcome: &Outcome| {
            if !json && failed.is_ok() {
                // A closed standard output must not stop the steps halfway.
                failed = print::outcome(&mut trishanku_stdio::stdout(), outcome);
            }
        };
        let outcomes = self.session.apply(planned, recreate, report).await;
        let commits = self.session.commits(&outcomes).await?;
        if json {
            let ids: Vec<String> = commits.iter().map(|commit| commit.commit.oid.to_string()).collect();
            let json =
                json!({ "dryRun": false, "steps": print::to_json(plan, &BTreeMap::new(), &outcomes), "commits": ids });
            writeln!(trishanku_stdio::plain_stdout(), "{json:#}")?;
        } else if let Some(hint) = self.session.hint(&commits, &outcomes)? {
            trishanku_stdio::println!("To undo this: {hint}");
        }
        failed?;
        let is_whole = outcomes.iter().all(|outcome| outcome.result.is_ok()) && plan.blocked().next().is_none();
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
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
