//! Undo for the web page.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::bail;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use gitcd::history::find::FoundCommit;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use trishanku_page::undo::{Preview, PreviewStep, Undo, UndoError, UndoRequest, Undone, UndoneStep};
use trishanku_undo::{Action, Mode, ObjectRef, Plan, Step};

use super::apply::{Done, Outcome};
use super::scope::Scope;
use super::session::{Identity, Planned, Session, Target, UNCHECKED};
use super::{gather, print, rejection};

/// How long a preview may take.
const LIMIT: Duration = Duration::from_mins(1);
/// Concurrent previews; each asks kube-apiserver about all objects of a commit.
const PREVIEWS: usize = 2;
/// Previews that can be confirmed; older ones have to be made again.
const OFFERED: usize = 100;

/// Reverts commits for the web page, as `trishanku undo` does.
#[derive(Clone)]
pub(crate) struct PageUndo(Arc<Inner>);

struct Inner {
    target: Target,
    /// One undo at a time: the next one plans with what the former one has changed.
    running: tokio::sync::Mutex<()>,
    previews: Arc<Semaphore>,
    /// Previews, the newest last.
    offered: Mutex<VecDeque<Offered>>,
    /// The number of previews so far.
    count: AtomicU64,
    digests: RandomState,
    is_closing: AtomicBool,
}

/// A preview that can be confirmed once. Confirmed again, as by a double click or a reload, it has the same outcome.
struct Offered {
    id: String,
    request: UndoRequest,
    digest: u64,
    undone: Option<Undone>,
}

impl PageUndo {
    pub(crate) fn new(target: Target) -> Self {
        Self(Arc::new(Inner {
            target,
            running: tokio::sync::Mutex::default(),
            previews: Arc::new(Semaphore::new(PREVIEWS)),
            offered: Mutex::default(),
            count: AtomicU64::default(),
            digests: RandomState::new(),
            is_closing: AtomicBool::default(),
        }))
    }

    /// Starts no undo any more. Returns whether one runs.
    pub(crate) fn close(&self) -> bool {
        self.0.is_closing.store(true, Ordering::Release);
        self.0.running.try_lock().is_err()
    }

    /// Waits until no undo runs.
    pub(crate) async fn idle(&self) {
        drop(self.0.running.lock().await);
    }
}

impl Undo for PageUndo {
    fn preview(&self, request: UndoRequest) -> BoxFuture<'static, Result<Preview, UndoError>> {
        let inner = self.0.clone();
        let late = || UndoError::Failed(format!("kube-apiserver has not answered within {} seconds", LIMIT.as_secs()));
        async move {
            let permit = timeout(LIMIT, inner.previews.clone().acquire_owned()).await.map_err(|_| late())?;
            let work = move || {
                // A preview for a browser that is gone keeps its permit until it ends.
                let _permit = permit;
                let preview = Handle::current().block_on(timeout(LIMIT, inner.preview(&request)));
                preview.unwrap_or_else(|_| Err(late()))
            };
            let done = tokio::task::spawn_blocking(work).await;
            done.unwrap_or_else(|error| Err(UndoError::Failed(format!("an internal error: {error}"))))
        }
        .boxed()
    }

    fn apply(&self, request: UndoRequest, plan: String) -> BoxFuture<'static, Result<Undone, UndoError>> {
        let inner = self.0.clone();
        // On a thread where reads of the repository block no request. It goes on if the returned future is dropped.
        let running = tokio::task::spawn_blocking(move || Handle::current().block_on(inner.apply(request, &plan)));
        running.map(|done| done.unwrap_or_else(|error| Err(UndoError::Interrupted(error.to_string())))).boxed()
    }
}

impl Inner {
    async fn preview(&self, request: &UndoRequest) -> Result<Preview, UndoError> {
        let session = self.session(request).await?;
        let (planned, warnings) = plan(&session, request).await.map_err(|error| failed(&error))?;
        Ok(self.offer(&session, request, &planned.plan, warnings).await)
    }

    async fn apply(&self, request: UndoRequest, id: &str) -> Result<Undone, UndoError> {
        let _running = self.running.lock().await;
        if self.is_closing.load(Ordering::Acquire) {
            return Err(UndoError::Failed("trishanku ui is being stopped".to_owned()));
        }
        let confirmed = self.confirmed(&request, id);
        if let Some((_, Some(undone))) = confirmed {
            return Ok(undone);
        }
        let session = self.session(&request).await?;
        let (planned, warnings) = plan(&session, &request).await.map_err(|error| failed(&error))?;
        if confirmed.map(|(digest, _)| digest) != Some(self.digest(&planned.plan)) {
            return Err(UndoError::Changed(Box::new(self.offer(&session, &request, &planned.plan, warnings).await)));
        }
        let undone = self.send(&session, &request, &planned).await;
        let mut offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(offered) = offered.iter_mut().find(|offered| offered.id == id) {
            offered.undone = Some(undone.clone());
        }
        Ok(undone)
    }

    async fn session(&self, UndoRequest { commit, .. }: &UndoRequest) -> Result<Session<'_>, UndoError> {
        Session::start(&self.target, std::slice::from_ref(commit)).await.map_err(|error| failed(&error))
    }

    /// Returns the digest of a preview, and what it did if it was confirmed before.
    fn confirmed(&self, request: &UndoRequest, id: &str) -> Option<(u64, Option<Undone>)> {
        let offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        let found = offered.iter().find(|offered| offered.id == id && offered.request == *request)?;
        Some((found.digest, found.undone.clone()))
    }

    /// Describes a plan, which can be confirmed from then on.
    async fn offer(&self, session: &Session<'_>, request: &UndoRequest, plan: &Plan, warnings: Vec<String>) -> Preview {
        let rejected = session.tried(plan, false).await.rejected;
        let id = self.count.fetch_add(1, Ordering::Relaxed).to_string();
        let offer = Offered { id: id.clone(), request: request.clone(), digest: self.digest(plan), undone: None };
        let mut offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        offered.push_back(offer);
        let excess = offered.len().saturating_sub(OFFERED);
        offered.drain(..excess);
        let recreate = rejected.values().any(|reason| rejection::needs_recreation(reason));
        Preview {
            recreate: recreate.then(|| recreation(session, request, plan)).flatten(),
            steps: plan.steps.iter().map(|step| described(step, &rejected)).collect(),
            changes: plan.requests().count(),
            summary: print::summary(plan),
            warnings,
            plan: id,
        }
    }

    async fn send(&self, session: &Session<'_>, request: &UndoRequest, planned: &Planned) -> Undone {
        let report = |outcome: &Outcome| {
            // No browser may show it any more.
            if self.is_closing.load(Ordering::Acquire) {
                let mut line = Vec::new();
                // Writing to memory cannot fail.
                let _done = print::outcome(&mut line, outcome);
                trishanku_stdio::eprint!("{}", String::from_utf8_lossy(&line));
            }
        };
        let outcomes = session.apply(planned, false, report).await;
        // What was done is shown even if its commits cannot be.
        let is_any = outcomes.iter().any(|outcome| outcome.result.as_ref().is_ok_and(|done| *done != Done::Unchanged));
        let commits = if is_any { session.commits(&outcomes).await.unwrap_or_default() } else { Vec::new() };
        let hint = session.hint(&commits, &outcomes).unwrap_or_default();
        let has_others = session.has_others(&commits, &outcomes).unwrap_or(true);
        let ids = commits.iter().map(|commit| commit.commit.oid.to_string()).collect();
        let needs_recreation = outcomes.iter().filter_map(|outcome| outcome.result.as_ref().err());
        let recreate = { needs_recreation }.any(|reason| rejection::needs_recreation(reason));
        let recreate = recreate.then(|| recreation(session, request, &planned.plan)).flatten();
        Undone { steps: outcomes.into_iter().map(undone).collect(), commits: ids, has_others, hint, recreate }
    }

    /// Returns the same for plans that would do the same.
    fn digest(&self, plan: &Plan) -> u64 {
        let targets: Vec<Value> = plan.steps.iter().filter_map(Step::target).map(content).collect();
        self.digests
            .hash_one((print::to_json(plan, &BTreeMap::new(), &[]).to_string(), Value::from(targets).to_string()))
    }
}

/// Returns the command line that does the same with the deletion and creation of objects, which the page does not do.
fn recreation(session: &Session<'_>, UndoRequest { commit, key }: &UndoRequest, plan: &Plan) -> Option<String> {
    let objects: Vec<&ObjectRef> = plan.steps.iter().map(|step| &step.object).collect();
    session.recreation(commit, key.is_some().then_some(&objects))
}

/// Returns an object without what changes all the time.
fn content(object: &Value) -> Value {
    let mut content = object.clone();
    if let Some(fields) = content.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = content.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| !matches!(name.as_str(), "managedFields" | "resourceVersion"));
    }
    content
}

/// Returns a plan, and what users should know before they confirm it.
async fn plan(
    session: &Session<'_>,
    UndoRequest { commit, key }: &UndoRequest,
) -> anyhow::Result<(Planned, Vec<String>)> {
    let commits = session.branch.history.find_commits(std::slice::from_ref(commit))?;
    let mut warnings = Vec::new();
    if session.identity == Identity::Forbidden {
        warnings.push(UNCHECKED.to_owned());
    }
    let scope = match key {
        Some(key) if key.ends_with('/') => bail!("{key:?} is not the key of an object of Kubernetes"),
        Some(key) => Scope::Keys(vec![key.clone()]),
        None => {
            warnings.extend(of_several_users(&commits));
            Scope::All
        }
    };
    let found = gather::of_commits(&session.branch, &commits, None, &scope)?;
    Ok((session.plan(found, Mode::Undo, None).await?, warnings))
}

fn of_several_users(commits: &[FoundCommit]) -> impl Iterator<Item = String> {
    let warning = |(_, users): (String, Vec<String>)| format!("the commit has changes of {}", users.join(", "));
    gather::of_several_users(commits).into_iter().map(warning)
}

fn failed(error: &anyhow::Error) -> UndoError {
    UndoError::Failed(format!("{error:#}"))
}

fn described(step: &Step, rejected: &BTreeMap<String, String>) -> PreviewStep {
    let problem = match &step.action {
        // Without their names: the user may not have the right to read them.
        Action::Blocked(_) if !step.contents.is_empty() => Some(format!(
            "objects in it would be deleted with it ({}); undo these as well, or delete them first",
            step.contents.len()
        )),
        Action::Nothing(reason) | Action::Left(reason) | Action::Blocked(reason) => Some(reason.clone()),
        _ => rejected.get(&step.object.key).cloned(),
    };
    let dependents = match step.dependents.len() {
        0 => None,
        1 => Some("it owns another object, which Kubernetes deletes with it".to_owned()),
        many => Some(format!("it owns {many} other objects, which Kubernetes deletes with it")),
    };
    PreviewStep {
        action: step.word().to_owned(),
        object: step.object.to_string(),
        fields: step.fields.clone(),
        stays: step.stays.clone(),
        notes: step.notes.iter().cloned().chain(dependents).collect(),
        problem,
    }
}

fn undone(Outcome { object, result, notes, .. }: Outcome) -> UndoneStep {
    let is_changed = result.as_ref().is_ok_and(|done| *done != Done::Unchanged);
    let outcome = result.map(|done| print::word(done).to_owned());
    UndoneStep { object: object.to_string(), outcome, is_changed, notes }
}
