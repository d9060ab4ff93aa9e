//! Merges of other commits into the served branch.

mod options;

use std::sync::Arc;
use std::time::Duration;

use git2::Oid;
use gitcd_core::path;
use gitcd_core::trace::{self, TARGET};
use gitcd_engine::committer::Head;
use gitcd_merge::secrecy::SecretKinds;
use gitcd_mvcc::{self as store, Store};
use gitcd_repo::branch::Config;
use gitcd_repo::git_dir;
use gitcd_repo::refs::{RefError, Refs};
use gitcd_repo::{changes, object};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, info_span};

pub(super) use self::options::Conflicts;
pub use self::options::{DryRun, HistoryLink, MergeError, MergeOptions, MergeOutcome};
use super::dry_run::{ApiServer, Verdicts};
use super::git_worker::{GitWorker, OpenError};
use super::plan::{Plan, PlanError, Rules, plan};
use super::restore::restoring;

/// The merger of commits into one branch; one merge at a time.
#[derive(Debug)]
pub struct Merger {
    store: Arc<Store>,
    heads: watch::Receiver<Head>,
    config: Config,
    secret_kinds: SecretKinds,
    api_server: Option<ApiServer>,
    git: GitWorker,
    turn: tokio::sync::Mutex<()>,
}

/// Interval of checks for a failed committer while waiting for it.
const LOOK: Duration = Duration::from_secs(1);
/// How long the committer may make no progress, for example on a full disk, before a wait for it fails. The committer goes on.
const COMMIT_WITHIN: Duration = Duration::from_mins(5);

impl Merger {
    /// Returns the merger for a served branch.
    ///
    /// # Errors
    /// [`MergeError::Repository`], [`MergeError::Reference`].
    pub fn new(store: Arc<Store>, heads: watch::Receiver<Head>, config: Config) -> Result<Self, MergeError> {
        let (git, turn) = (GitWorker::open(&git_dir(&config.repository))?, tokio::sync::Mutex::default());
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

    /// Returns the worker of the branch's repository.
    pub(super) fn git(&self) -> &GitWorker {
        &self.git
    }

    /// Returns whether an object exists and is neither a commit nor an annotated tag of one.
    pub(super) async fn is_no_commit(&self, oid: Oid) -> bool {
        let found = self.git.run(move |git| {
            let odb = git.repository.odb().ok()?;
            let (_, kind) = odb.read_header(object::peeled(&odb, oid)).ok()?;
            Some(kind != git2::ObjectType::Commit)
        });
        found.await.unwrap_or(false)
    }

    /// Returns whether `ancestor` is in the history of `commit`.
    ///
    /// # Errors
    /// [`MergeError::Plan`] if a commit cannot be read.
    pub async fn is_ancestor(&self, ancestor: Oid, commit: Oid) -> Result<bool, MergeError> {
        let found = self.git.run(move |git| git.graph.is_ancestor(&git.repository, ancestor, commit));
        Ok(found.await.map_err(PlanError::from)?)
    }

    /// Returns the paths that exist in a commit and cannot be mapped to a key; none if the commit cannot be read.
    pub(super) async fn unmappable(&self, commit: Oid, paths: Vec<String>) -> Vec<String> {
        let found = self.git.run(move |git| {
            let tree = git.repository.find_commit(commit).and_then(|commit| commit.tree());
            let Ok(tree) = tree else { return Vec::new() };
            paths.into_iter().filter(|path| changes::is_strange(&tree, path)).collect()
        });
        found.await
    }

    /// Commits everything written so far, and waits until it is in Git.
    ///
    /// # Errors
    /// [`MergeError::Stopped`], [`MergeError::NotCommitted`].
    pub async fn commit(&self) -> Result<Head, MergeError> {
        let wanted = self.store.revision();
        let (mut heads, mut waiting) = (self.heads.clone(), CommitWait::new(COMMIT_WITHIN));
        loop {
            let head = *heads.borrow_and_update();
            if head.revision >= wanted || self.store.committed_revision() >= wanted {
                return Ok(head);
            }
            self.store.hurry();
            waiting.next(self, &mut heads).await?;
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
        if options.defers_link(&plan, head.data, theirs) {
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
        let (config, wanted, secret_kinds) = (self.config.clone(), options.clone(), self.secret_kinds.clone());
        let planned = self.git.run(move |git| {
            git.reopen().map_err(OpenError::Repository)?;
            let rules = Rules {
                keys: &config.keys,
                policy: wanted.policy,
                scope: &wanted.scope,
                fast_forward: wanted.fast_forward,
                secret_kinds: &secret_kinds,
                verdicts: verdicts.as_ref(),
                provenance: wanted.provenance,
            };
            // An external push, or the remote's reference, may be an annotated tag.
            let theirs = git.repository.odb().map_or(theirs, |odb| object::peeled(&odb, theirs));
            let git_dir = git.repository.commondir();
            let plan = restoring(git_dir, || plan(&git.repository, &mut git.graph, &rules, head.data, theirs))?;
            let is_joined = |plan: &Plan| !wanted.is_needless(plan) && !wanted.defers_link(plan, head.data, theirs);
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
        planned.await
    }

    /// Returns the path of a key's file in the tree.
    fn path(&self, key: &[u8]) -> String {
        let names: Vec<_> = path::encode(self.config.keys.relative(key)).map(|name| name.to_vec()).collect();
        String::from_utf8_lossy(&names.join(&b'/')).into_owned()
    }

    /// Waits until all merges are in Git.
    async fn settled(&self, heads: &mut watch::Receiver<Head>) -> Result<(), MergeError> {
        let mut waiting = CommitWait::new(COMMIT_WITHIN);
        while self.store.has_merges() {
            waiting.next(self, heads).await?;
        }
        Ok(())
    }
}

/// A wait for commits, which fails if none is made in time.
struct CommitWait {
    within: Duration,
    until: Instant,
}

impl CommitWait {
    fn new(within: Duration) -> Self {
        Self { within, until: Instant::now() + within }
    }

    /// Waits for the next commit, or a second: the caller's condition may hold without a new commit.
    async fn next(&mut self, merger: &Merger, heads: &mut watch::Receiver<Head>) -> Result<(), MergeError> {
        match tokio::time::timeout(LOOK.min(self.within), heads.changed()).await {
            Ok(Ok(())) => *self = Self::new(self.within),
            Ok(Err(_)) => return Err(MergeError::Stopped),
            Err(_) => {
                if let Some(reason) = merger.store.poisoned() {
                    return Err(store::Error::Poisoned(reason).into());
                }
                if Instant::now() >= self.until {
                    return Err(MergeError::NotCommitted(self.within));
                }
            }
        }
        Ok(())
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
