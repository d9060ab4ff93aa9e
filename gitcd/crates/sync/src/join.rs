//! From a commit of somebody else's to one that has both histories.

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

/// How a commit is merged.
#[derive(Clone, Debug)]
pub struct How {
    /// Who wins.
    pub policy: Policy,
    /// Which keys are taken.
    pub scope: Scope,
    /// Whether their commit may become ours.
    pub fast_forward: bool,
    /// Whether to make the commit although only the histories differ and the other side is to do it.
    pub impatient: bool,
    /// Whether a commit is made although nothing comes with theirs.
    pub histories: Histories,
    /// Only if this is where the branch is in Git, and nothing that is not there yet is in conflict with it.
    pub on_top_of: Option<Oid>,
    /// Whether a file that cannot enter keeps everything else out, too.
    pub strict: bool,
    /// Whether the files of people are tried at the store's kube-apiserver, if it has one.
    pub dry_run: DryRun,
    /// Whom watchers and commits are told as the writer.
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

/// When histories are joined of which only parts are taken, and nothing new is in these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Histories {
    /// Not before there is something.
    Later,
    /// If ours has something more, since that is to be pushed on top of theirs.
    ToPush,
    /// At once: the reference that has theirs is to move on.
    Now,
}

/// Keys and fields that both sides of a merge had changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts {
    /// How many.
    pub count: usize,
    /// The first of them, each with the path of its file: at most [`store::merge::Conflicts::LISTED`].
    pub first: Vec<(String, Conflict)>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joined {
    /// It was in our history already.
    Contained,
    /// It has nothing that we take and do not have.
    NothingNew,
    /// Only the histories differ, and the other side is to join them.
    Left,
    /// It is not on top of the branch any more.
    Moved,
    /// These files cannot enter, so nothing does; or there is nothing else that is not in our history.
    Refused(Vec<Rejected>),
    /// It is now.
    Done {
        /// Keys that changed here.
        keys: usize,
        /// Keys and fields that both sides had changed, by their paths in the tree.
        conflicts: Conflicts,
        /// Files that did not enter.
        rejected: Vec<Rejected>,
    },
}

impl How {
    fn is_needless(&self, plan: &Plan) -> bool {
        plan.nothing_new
            && match self.histories {
                Histories::Later => true,
                Histories::ToPush => plan.follows,
                Histories::Now => false,
            }
    }

    /// Of two that could both join the histories, one does, so that they do not chase each other.
    fn is_left(&self, plan: &Plan, ours: Oid, theirs: Oid) -> bool {
        plan.same_tree && !plan.fast_forward && !self.impatient && ours > theirs
    }
}

/// Why it was not merged. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// It cannot be computed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The commit cannot be kept alive.
    #[error(transparent)]
    Reference(#[from] RefError),
    /// The repository cannot be opened.
    #[error("cannot open the repository: {0}")]
    Repository(String),
    /// The kube-apiserver did not complete a dry run.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The store does not take it.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The server ended before it was committed; the journal has it.
    #[error("stopped before the merge was committed; the next start commits it")]
    Stopped,
}

/// Merges commits into one branch, one at a time.
#[derive(Debug)]
pub struct Joiner {
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

/// A committer that takes longer has a problem, which is looked for.
const LOOK: Duration = Duration::from_secs(1);

impl Joiner {
    /// For a branch that is being served.
    ///
    /// # Errors
    /// [`JoinError::Repository`], [`JoinError::Reference`].
    pub fn new(store: Arc<Store>, heads: watch::Receiver<Head>, config: Config) -> Result<Self, JoinError> {
        let folder = git_dir(&config.repository);
        let repository =
            Repository::open(&folder).map_err(|error| JoinError::Repository(error.message().to_owned()))?;
        let refs = Refs::open(&folder)?;
        let git = Git { repository, refs, graph: Graph::default() };
        let (git, turn) = (Arc::new(Mutex::new(git)), tokio::sync::Mutex::default());
        Ok(Self { store, heads, config, secret_kinds: SecretKinds::default(), api_server: None, git, turn })
    }

    /// The same with these kinds hidden like Secrets in what is reported of merges.
    #[must_use]
    pub fn with_secret_kinds(self, kinds: &SecretKinds) -> Self {
        Self { secret_kinds: kinds.clone(), ..self }
    }

    /// The same with a kube-apiserver at which files of people are tried before they enter.
    #[must_use]
    pub fn with_api_server(self, api_server: Option<ApiServer>) -> Self {
        Self { api_server, ..self }
    }

    /// Where the branch is in Git.
    pub fn head(&self) -> Head {
        *self.heads.borrow()
    }

    /// Follows where the branch is in Git.
    pub fn heads(&self) -> watch::Receiver<Head> {
        self.heads.clone()
    }

    /// The branch.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Whether an object is there and is neither a commit nor an annotated tag of one.
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

    /// Whether `ancestor` is in the history of `commit`.
    ///
    /// # Errors
    /// [`JoinError::Plan`] if a commit cannot be read.
    pub async fn is_ancestor(&self, ancestor: Oid, commit: Oid) -> Result<bool, JoinError> {
        let git = self.git.clone();
        let found = tokio::task::spawn_blocking(move || {
            let git = &mut *git.lock();
            git.graph.is_ancestor(&git.repository, ancestor, commit)
        });
        Ok(found.await.expect("reading commits does not panic").map_err(PlanError::from)?)
    }

    /// Which of these paths stand for no key and are there in a commit, as far as that can be read.
    pub(super) async fn strange(&self, commit: Oid, paths: Vec<String>) -> Vec<String> {
        let git = self.git.clone();
        let found = tokio::task::spawn_blocking(move || {
            let repository = &git.lock().repository;
            let Ok(tree) = repository.find_commit(commit).and_then(|commit| commit.tree()) else { return Vec::new() };
            paths.into_iter().filter(|path| changes::is_strange(&tree, path)).collect()
        });
        found.await.expect("reading a tree does not panic")
    }

    /// Asks for a commit of everything written so far, and waits for it.
    ///
    /// # Errors
    /// [`JoinError::Stopped`].
    pub async fn commit(&self) -> Result<Head, JoinError> {
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

    /// Merges a commit that is in the repository, and returns when the branch has it in Git.
    ///
    /// # Errors
    /// [`JoinError`].
    pub async fn join(&self, theirs: Oid, how: &How) -> Result<Joined, JoinError> {
        let _turn = self.turn.lock().await;
        let mut heads = self.heads.clone();
        // What a former merge brought is in the store before it is in Git, also after a crash: until then it would be taken for what clients have written here.
        self.settled(&mut heads).await?;
        let head = *heads.borrow_and_update();
        if how.on_top_of.is_some_and(|expected| expected != head.data) {
            return Ok(Joined::Moved);
        }
        if head.data == theirs || head.next == theirs {
            return Ok(Joined::Contained);
        }
        let span = span(&self.config.name);
        let joined = self.merge(head, heads, theirs, how).instrument(span.clone()).await;
        match &joined {
            Ok(Joined::Done { keys, conflicts, .. }) => {
                span.record("gitcd.keys", *keys).record("gitcd.conflicts", conflicts.count);
            }
            Ok(_) => {}
            Err(_) => {
                span.record("otel.status_code", "ERROR");
            }
        }
        joined
    }

    async fn merge(
        &self,
        head: Head,
        mut heads: watch::Receiver<Head>,
        theirs: Oid,
        how: &How,
    ) -> Result<Joined, JoinError> {
        let mut verdicts = self.api_server.as_ref().filter(|_| how.dry_run != DryRun::Never).map(|_| Verdicts::new());
        let (plan, is_old, theirs) = loop {
            let planned = self.planned(head, theirs, how, verdicts.clone()).await?;
            let trials = planned.0.as_ref().map(|plan| plan.trials.clone()).unwrap_or_default();
            let (Some(api_server), Some(known)) =
                (self.api_server.as_ref().filter(|_| !trials.is_empty()), &mut verdicts)
            else {
                break planned;
            };
            match api_server.try_all(trials).await {
                Ok(found) => known.extend(found),
                Err(error) if how.dry_run == DryRun::IfReachable => {
                    tracing::warn!(error = %error, "merged external commits without a dry run; only the rules for files apply");
                    verdicts = None;
                }
                Err(error) => return Err(error.into()),
            }
        };
        let Some(plan) = plan else { return Ok(Joined::Contained) };
        if how.is_needless(&plan) {
            return Ok(Joined::NothingNew);
        }
        if is_old || how.strict && !plan.rejected.is_empty() {
            return Ok(Joined::Refused(plan.rejected));
        }
        if how.is_left(&plan, head.data, theirs) {
            self.store.leave(head.data, theirs, plan.trailers);
            return Ok(Joined::Left);
        }
        let request = store::merge::Request {
            at: head.revision,
            theirs: object::bytes(theirs),
            keys: plan.keys,
            policy: how.policy,
            schemas: plan.schemas,
            fast_forward: plan.fast_forward,
            no_conflicts: how.on_top_of.is_some(),
            // What is written now knows of those, and this plan does not: their commits come first, and then there is another plan.
            only_as_planned: self.store.left_at(head.data).is_some(),
            trailers: plan.trailers,
            by: how.by.clone(),
        };
        let done = match self.store.merge(request).await {
            Err(store::Error::Conflict(_)) => return Ok(Joined::Moved),
            done => done?,
        };
        self.settled(&mut heads).await?;
        let keys = done.last.since(done.first) + usize::from(done.last >= done.first);
        let first = done.conflicts.first.into_iter().map(|(key, conflict)| (self.path(&key), conflict));
        let conflicts = Conflicts { count: done.conflicts.count, first: first.collect() };
        Ok(Joined::Done { keys, conflicts, rejected: plan.rejected })
    }

    /// The plan, whether it is about nothing but files that were refused before, and their commit.
    async fn planned(
        &self,
        head: Head,
        theirs: Oid,
        how: &How,
        verdicts: Option<Verdicts>,
    ) -> Result<(Option<Plan>, bool, Oid), JoinError> {
        let (git, config, wanted) = (self.git.clone(), self.config.clone(), how.clone());
        let secret_kinds = self.secret_kinds.clone();
        let planned = tokio::task::spawn_blocking(move || {
            let git = &mut *git.lock();
            // Packs come and go with every exchange, and a repository that stays open keeps those that are gone.
            git.repository = Repository::open(git.repository.path())
                .map_err(|error| JoinError::Repository(error.message().to_owned()))?;
            let rules = Rules {
                keys: &config.keys,
                policy: wanted.policy,
                scope: &wanted.scope,
                fast_forward: wanted.fast_forward,
                secret_kinds: &secret_kinds,
                verdicts: verdicts.as_ref(),
            };
            // A person may push a tag, or have one in place of a branch.
            let theirs = git.repository.odb().map_or(theirs, |odb| object::peeled(&odb, theirs));
            let plan = plan(&git.repository, &mut git.graph, &rules, head.data, theirs)?;
            let is_joined = |plan: &Plan| !wanted.is_needless(plan) && !wanted.is_left(plan, head.data, theirs);
            // What cannot enter is found again and again.
            let may_be_old = |plan: &Plan| plan.keys.is_empty() && !plan.rejected.is_empty();
            let is_old = plan.as_ref().is_some_and(may_be_old)
                && git.graph.is_ancestor(&git.repository, theirs, head.data).map_err(PlanError::from)?;
            if !is_old && plan.as_ref().is_some_and(|plan| plan.trials.is_empty() && is_joined(plan)) {
                // Until our own commit leads to it, nothing else does.
                keep(&git.refs, &config, theirs)?;
            }
            Ok::<_, JoinError>((plan, is_old, theirs))
        });
        planned.await.expect("a merge does not panic")
    }

    /// The path of a key's file in the tree.
    fn path(&self, key: &[u8]) -> String {
        let names: Vec<_> = path::encode(self.config.keys.relative(key)).map(|name| name.to_vec()).collect();
        String::from_utf8_lossy(&names.join(&b'/')).into_owned()
    }

    /// Waits until all merges are in Git.
    async fn settled(&self, heads: &mut watch::Receiver<Head>) -> Result<(), JoinError> {
        while self.store.has_merges() {
            self.changed(heads).await?;
        }
        Ok(())
    }

    async fn changed(&self, heads: &mut watch::Receiver<Head>) -> Result<(), JoinError> {
        match tokio::time::timeout(LOOK, heads.changed()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(JoinError::Stopped),
            // What was asked for may have come while nobody listened, or never will.
            Err(_) => match self.store.poisoned() {
                Some(reason) => Err(store::Error::Poisoned(reason).into()),
                None => Ok(()),
            },
        }
    }
}

/// A merge, from the look for what differs until it is in Git: in a trace of its own, whoever asked for it.
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

/// The reference that keeps what is being merged alive. After a power loss it may be gone: what nothing leads to `git gc` leaves for two
/// weeks, and the merge that is in the journal is made at the next start.
fn keep(refs: &Refs, config: &Config, theirs: Oid) -> Result<(), RefError> {
    refs.note(&format!("refs/gitcd/merging/{}", config.name), theirs)
}

#[cfg(test)]
mod tests;
