//! Merges of other commits into the served branch.

use std::sync::Arc;
use std::time::Duration;

use git2::{Oid, Repository};
use gitcd_core::path;
use gitcd_core::scope::Scope;
use gitcd_core::trace::{self, TARGET};
use gitcd_engine::committer::Head;
use gitcd_merge::secrecy::SecretKinds;
use gitcd_merge::{Conflict, Policy};
use gitcd_mvcc::{self as store, Store};
use gitcd_repo::branch::Config;
use gitcd_repo::git_dir;
use gitcd_repo::graph::Graph;
use gitcd_repo::refs::{RefError, Refs};
use gitcd_repo::{changes, object};
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, info_span};

use super::dry_run::{ApiServer, Unavailable, Verdicts};
use super::plan::{Plan, PlanError, Rejected, Rules, plan};

/// Options of a merge.
#[derive(Clone, Debug)]
pub struct MergeOptions {
    /// Which side wins conflicts.
    pub policy: Policy,
    /// Which keys are merged.
    pub scope: Scope,
    /// Whether the branch may fast-forward to their commit.
    pub fast_forward: bool,
    /// Whether to make the merge commit even if the trees are equal and the other side is the one to make it.
    pub impatient: bool,
    /// Whether to make a merge commit if theirs has nothing new among the merged keys.
    pub history_link: HistoryLink,
    /// If set, merges only if this is the branch's commit, and no uncommitted write conflicts.
    pub on_top_of: Option<Oid>,
    /// Whether one rejected file rejects the whole merge.
    pub strict: bool,
    /// Whether files in external commits get a dry run at the store's kube-apiserver, if it has one.
    pub dry_run: DryRun,
    /// The writer to report to watchers and in commits.
    pub by: Arc<str>,
}

/// When pushed files are sent to the kube-apiserver as dry runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// Never, for commits that other branches have accepted.
    Never,
    /// If the kube-apiserver is reachable; otherwise only the rules for files apply.
    IfReachable,
    /// Required: the merge fails while the kube-apiserver is unreachable.
    Required,
}

/// When to add a history link although theirs has nothing new among the merged keys; only for merges that leave keys out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryLink {
    /// Not before theirs has something new.
    WithChanges,
    /// If ours is to be pushed on top of theirs, because it has commits that theirs lacks.
    ToPush,
    /// Immediately, so that the reference to theirs can move on.
    Always,
}

/// Conflicts of a merge: keys and fields that both sides changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts {
    /// Their number.
    pub count: usize,
    /// The first of them with the paths of their files; at most [`store::merge::Conflicts::LISTED`].
    pub first: Vec<(String, Conflict)>,
}

/// The result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeOutcome {
    /// Our history already contains the commit.
    Contained,
    /// The commit has nothing new among the merged keys.
    NothingNew,
    /// Only the histories differ, and the other side is to add the history link.
    Deferred,
    /// The branch is no longer at [`MergeOptions::on_top_of`], or an uncommitted write conflicts.
    Moved,
    /// These files were rejected, and nothing was merged: the merge is strict, or our history already contains the commit.
    Refused(Vec<Rejected>),
    /// The commit was merged.
    Done {
        /// Number of keys that changed here.
        keys: usize,
        /// The conflicts that the merge resolved.
        conflicts: Conflicts,
        /// Files that were rejected.
        rejected: Vec<Rejected>,
    },
}

impl MergeOptions {
    fn is_needless(&self, plan: &Plan) -> bool {
        plan.nothing_new
            && match self.history_link {
                HistoryLink::WithChanges => true,
                HistoryLink::ToPush => plan.follows,
                HistoryLink::Always => false,
            }
    }

    /// Returns whether to leave the history link to the other side. Exactly one of the two sides adds it, so that they do not
    /// merge each other's merges for ever.
    fn is_left(&self, plan: &Plan, ours: Oid, theirs: Oid) -> bool {
        plan.same_tree && !plan.fast_forward && !self.impatient && ours > theirs
    }
}

/// Why a commit was not merged, or its merge not committed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// The merge cannot be computed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The reference that protects the commit from garbage collection cannot be written.
    #[error(transparent)]
    Reference(#[from] RefError),
    /// The repository cannot be opened.
    #[error("cannot open the repository: {0}")]
    Repository(String),
    /// The kube-apiserver did not complete a dry run.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The store rejects the merge.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The server stopped before the merge was committed; the journal has it.
    #[error("stopped before the merge was committed; the next start commits it")]
    Stopped,
}

/// The merger of commits into one branch; one merge at a time.
#[derive(Debug)]
pub struct Merger {
    store: Arc<Store>,
    heads: watch::Receiver<Head>,
    config: Config,
    secret_kinds: SecretKinds,
    api_server: Option<ApiServer>,
    git: Arc<Mutex<Git>>,
    turn: tokio::sync::Mutex<()>,
}

struct Git {
    repository: Repository,
    refs: Refs,
    graph: Graph,
}

impl std::fmt::Debug for Git {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Git").field("repository", &self.repository.path()).finish_non_exhaustive()
    }
}

/// Interval of checks for a failed committer while waiting for it.
const LOOK: Duration = Duration::from_secs(1);

impl Merger {
    /// Returns the merger for a served branch.
    ///
    /// # Errors
    /// [`MergeError::Repository`], [`MergeError::Reference`].
    pub fn new(store: Arc<Store>, heads: watch::Receiver<Head>, config: Config) -> Result<Self, MergeError> {
        let folder = git_dir(&config.repository);
        let repository =
            Repository::open(&folder).map_err(|error| MergeError::Repository(error.message().to_owned()))?;
        let refs = Refs::open(&folder)?;
        let git = Git { repository, refs, graph: Graph::default() };
        let (git, turn) = (Arc::new(Mutex::new(git)), tokio::sync::Mutex::default());
        Ok(Self { store, heads, config, secret_kinds: SecretKinds::default(), api_server: None, git, turn })
    }

    /// Hides values of these kinds in reports of merges, like those of Secrets.
    #[must_use]
    pub fn with_secret_kinds(self, kinds: &SecretKinds) -> Self {
        Self { secret_kinds: kinds.clone(), ..self }
    }

    /// Sets the kube-apiserver at which files in external commits get a dry run before they are merged.
    #[must_use]
    pub fn with_api_server(self, api_server: Option<ApiServer>) -> Self {
        Self { api_server, ..self }
    }

    /// Returns the branch's position in Git.
    pub fn head(&self) -> Head {
        *self.heads.borrow()
    }

    /// Subscribes to the branch's position in Git.
    pub fn heads(&self) -> watch::Receiver<Head> {
        self.heads.clone()
    }

    /// Returns the branch's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Returns whether an object exists and is neither a commit nor an annotated tag of one.
    pub(super) async fn is_no_commit(&self, oid: Oid) -> bool {
        let git = self.git.clone();
        let found = tokio::task::spawn_blocking(move || {
            let git = git.lock();
            let odb = git.repository.odb().ok()?;
            let (_, kind) = odb.read_header(object::peeled(&odb, oid)).ok()?;
            Some(kind != git2::ObjectType::Commit)
        });
        found.await.expect("reading an object does not panic").unwrap_or(false)
    }

    /// Returns whether `ancestor` is in the history of `commit`.
    ///
    /// # Errors
    /// [`MergeError::Plan`] if a commit cannot be read.
    pub async fn is_ancestor(&self, ancestor: Oid, commit: Oid) -> Result<bool, MergeError> {
        let git = self.git.clone();
        let found = tokio::task::spawn_blocking(move || {
            let git = &mut *git.lock();
            git.graph.is_ancestor(&git.repository, ancestor, commit)
        });
        Ok(found.await.expect("reading commits does not panic").map_err(PlanError::from)?)
    }

    /// Returns the paths that exist in a commit and cannot be mapped to a key; none if the commit cannot be read.
    pub(super) async fn strange(&self, commit: Oid, paths: Vec<String>) -> Vec<String> {
        let git = self.git.clone();
        let found = tokio::task::spawn_blocking(move || {
            let repository = &git.lock().repository;
            let Ok(tree) = repository.find_commit(commit).and_then(|commit| commit.tree()) else { return Vec::new() };
            paths.into_iter().filter(|path| changes::is_strange(&tree, path)).collect()
        });
        found.await.expect("reading a tree does not panic")
    }

    /// Commits everything written so far, and waits until it is in Git.
    ///
    /// # Errors
    /// [`MergeError::Stopped`].
    pub async fn commit(&self) -> Result<Head, MergeError> {
        let wanted = self.store.revision();
        let mut heads = self.heads.clone();
        loop {
            let head = *heads.borrow_and_update();
            if head.revision >= wanted || self.store.committed_revision() >= wanted {
                return Ok(head);
            }
            self.store.hurry();
            self.changed(&mut heads).await?;
        }
    }

    /// Merges a commit that is in the repository. Returns once the merge is in Git.
    ///
    /// # Errors
    /// [`MergeError`].
    pub async fn merge(&self, theirs: Oid, options: &MergeOptions) -> Result<MergeOutcome, MergeError> {
        let _turn = self.turn.lock().await;
        let mut heads = self.heads.clone();
        // An earlier merge is in the store before it is in Git, also after a crash. Until it is in Git, its changes would
        // count as writes of our clients.
        self.settled(&mut heads).await?;
        let head = *heads.borrow_and_update();
        if options.on_top_of.is_some_and(|expected| expected != head.data) {
            return Ok(MergeOutcome::Moved);
        }
        if head.data == theirs || head.next == theirs {
            return Ok(MergeOutcome::Contained);
        }
        let span = span(&self.config.name);
        let joined = self.merge_at(head, heads, theirs, options).instrument(span.clone()).await;
        match &joined {
            Ok(MergeOutcome::Done { keys, conflicts, .. }) => {
                span.record("gitcd.keys", *keys).record("gitcd.conflicts", conflicts.count);
            }
            Ok(_) => {}
            Err(_) => {
                span.record("otel.status_code", "ERROR");
            }
        }
        joined
    }

    async fn merge_at(
        &self,
        head: Head,
        mut heads: watch::Receiver<Head>,
        theirs: Oid,
        options: &MergeOptions,
    ) -> Result<MergeOutcome, MergeError> {
        let mut verdicts =
            self.api_server.as_ref().filter(|_| options.dry_run != DryRun::Never).map(|_| Verdicts::new());
        let (plan, is_old, theirs) = loop {
            let planned = self.planned(head, theirs, options, verdicts.clone()).await?;
            let trials = planned.0.as_ref().map(|plan| plan.trials.clone()).unwrap_or_default();
            let (Some(api_server), Some(known)) =
                (self.api_server.as_ref().filter(|_| !trials.is_empty()), &mut verdicts)
            else {
                break planned;
            };
            match api_server.try_all(trials).await {
                Ok(found) => known.extend(found),
                Err(error) if options.dry_run == DryRun::IfReachable => {
                    tracing::warn!(error = %error, "merged external commits without a dry run; only the rules for files apply");
                    verdicts = None;
                }
                Err(error) => return Err(error.into()),
            }
        };
        let Some(plan) = plan else { return Ok(MergeOutcome::Contained) };
        if options.is_needless(&plan) {
            return Ok(MergeOutcome::NothingNew);
        }
        if is_old || options.strict && !plan.rejected.is_empty() {
            return Ok(MergeOutcome::Refused(plan.rejected));
        }
        if options.is_left(&plan, head.data, theirs) {
            self.store.leave(head.data, theirs, plan.trailers);
            return Ok(MergeOutcome::Deferred);
        }
        let request = store::merge::Request {
            at: head.revision,
            theirs: object::bytes(theirs),
            keys: plan.keys,
            policy: options.policy,
            schemas: plan.schemas,
            fast_forward: plan.fast_forward,
            no_conflicts: options.on_top_of.is_some(),
            // New writes also link the deferred commits, which this plan does not know: they are committed first, then a new plan
            // is made.
            only_as_planned: self.store.deferred_at(head.data).is_some(),
            trailers: plan.trailers,
            by: options.by.clone(),
        };
        let done = match self.store.merge(request).await {
            Err(store::Error::Conflict(_)) => return Ok(MergeOutcome::Moved),
            done => done?,
        };
        self.settled(&mut heads).await?;
        let keys = done.last.since(done.first) + usize::from(done.last >= done.first);
        let first = done.conflicts.first.into_iter().map(|(key, conflict)| (self.path(&key), conflict));
        let conflicts = Conflicts { count: done.conflicts.count, first: first.collect() };
        Ok(MergeOutcome::Done { keys, conflicts, rejected: plan.rejected })
    }

    /// Returns the plan, whether it has only files that were rejected before, and their commit, with tags peeled.
    async fn planned(
        &self,
        head: Head,
        theirs: Oid,
        options: &MergeOptions,
        verdicts: Option<Verdicts>,
    ) -> Result<(Option<Plan>, bool, Oid), MergeError> {
        let (git, config, wanted) = (self.git.clone(), self.config.clone(), options.clone());
        let secret_kinds = self.secret_kinds.clone();
        let planned = tokio::task::spawn_blocking(move || {
            let git = &mut *git.lock();
            // Reopened, because every fetch and repack changes the packs, and an open repository keeps deleted ones.
            git.repository = Repository::open(git.repository.path())
                .map_err(|error| MergeError::Repository(error.message().to_owned()))?;
            let rules = Rules {
                keys: &config.keys,
                policy: wanted.policy,
                scope: &wanted.scope,
                fast_forward: wanted.fast_forward,
                secret_kinds: &secret_kinds,
                verdicts: verdicts.as_ref(),
            };
            // An external push, or the remote's reference, may be an annotated tag.
            let theirs = git.repository.odb().map_or(theirs, |odb| object::peeled(&odb, theirs));
            let plan = plan(&git.repository, &mut git.graph, &rules, head.data, theirs)?;
            let is_joined = |plan: &Plan| !wanted.is_needless(plan) && !wanted.is_left(plan, head.data, theirs);
            // Rejected files are found again by each merge.
            let may_be_old = |plan: &Plan| plan.keys.is_empty() && !plan.rejected.is_empty();
            let is_old = plan.as_ref().is_some_and(may_be_old)
                && git.graph.is_ancestor(&git.repository, theirs, head.data).map_err(PlanError::from)?;
            if !is_old && plan.as_ref().is_some_and(|plan| plan.trials.is_empty() && is_joined(plan)) {
                // Until our merge commit exists, it may be reachable from nothing else.
                keep(&git.refs, &config, theirs)?;
            }
            Ok::<_, MergeError>((plan, is_old, theirs))
        });
        planned.await.expect("a merge does not panic")
    }

    /// Returns the path of a key's file in the tree.
    fn path(&self, key: &[u8]) -> String {
        let names: Vec<_> = path::encode(self.config.keys.relative(key)).map(|name| name.to_vec()).collect();
        String::from_utf8_lossy(&names.join(&b'/')).into_owned()
    }

    /// Waits until all merges are in Git.
    async fn settled(&self, heads: &mut watch::Receiver<Head>) -> Result<(), MergeError> {
        while self.store.has_merges() {
            self.changed(heads).await?;
        }
        Ok(())
    }

    async fn changed(&self, heads: &mut watch::Receiver<Head>) -> Result<(), MergeError> {
        match tokio::time::timeout(LOOK, heads.changed()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(MergeError::Stopped),
            // The condition may hold by now without a new head, or never, if the store is poisoned.
            Err(_) => match self.store.poisoned() {
                Some(reason) => Err(store::Error::Poisoned(reason).into()),
                None => Ok(()),
            },
        }
    }
}

/// Returns the span of a merge, from planning until the merge is in Git. It is the root of its own trace.
fn span(branch: &str) -> Span {
    if !trace::on() {
        return Span::none();
    }
    info_span!(
        target: TARGET,
        parent: None,
        "merge",
        otel.status_code = Empty,
        gitcd.branch = branch,
        gitcd.keys = Empty,
        gitcd.conflicts = Empty,
    )
}

/// Protects a commit from garbage collection while it is merged. The reference may be lost in a power failure, but `git gc` keeps
/// unreachable objects for two weeks, and the next start commits the merge from the journal.
fn keep(refs: &Refs, config: &Config, theirs: Oid) -> Result<(), RefError> {
    refs.note(&format!("refs/gitcd/merging/{}", config.name), theirs)
}

#[cfg(test)]
mod tests;
