//! Remotes: fetches from other repositories, and pushes to them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use git2::{Oid, Repository};
use gitcd_core::scope::Scope;
use gitcd_merge::Policy;
use gitcd_repo::git_dir;
use gitcd_repo::refs::{RefError, Refs};
use gitcd_repo::transfer::TransferError;
use gitcd_repo::{branch, object};
use parking_lot::Mutex;

use super::credentials::Credentials;
use super::local::Copier;
use super::program::LIMIT;
use super::program::{self, Failed};
use super::reach::Reach;
use super::smart::{Events, Service, Session};
use super::status::Condition;

/// A remote of a branch.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags of their own, not states")]
pub struct Remote {
    /// Its name in the repository's configuration, such as `origin`.
    pub name: String,
    /// The remote's reference to merge; empty for the reference of our branch.
    pub data_reference: String,
    /// Which side wins conflicts.
    pub policy: Policy,
    /// Which keys are merged.
    pub scope: Scope,
    /// Whether our branch may fast-forward to its commits.
    pub fast_forward: bool,
    /// Whether to fetch; otherwise, what other programs have fetched is merged.
    pub fetch: bool,
    /// Whether to push our branch after a pull.
    pub push_after_merge: bool,
    /// Whether to push it even if the pull failed.
    pub push_on_pull_failure: bool,
    /// Credentials for remotes that require them.
    pub credentials: Credentials,
}

/// The references of a remote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// The commit to merge.
    pub theirs: Option<Oid>,
    /// The commit of our branch there.
    pub own: Option<Oid>,
    /// The commit of our metadata there.
    pub own_metadata: Option<Oid>,
    /// Bytes of the objects that were fetched.
    pub bytes: u64,
}

impl Fetched {
    /// Returns the commits that the remote has.
    pub(super) fn tips(&self) -> Vec<Oid> {
        [self.theirs, self.own, self.own_metadata].into_iter().flatten().collect()
    }
}

/// Why an exchange with a remote failed.
#[derive(Debug, thiserror::Error)]
#[error("remote {remote:?}: {problem}")]
pub struct RemoteError {
    /// The remote.
    pub remote: String,
    /// The kind of failure.
    pub condition: Condition,
    /// The failure in detail.
    pub problem: String,
}

/// State that exchanges with a remote share: connections, and open packs, so that many small exchanges leave few packs. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Link {
    fetching: Arc<Mutex<Copier>>,
    pushing: Arc<Mutex<Copier>>,
    session: Arc<Session>,
}

/// The location of a remote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// A repository in a folder on this machine.
    Folder(PathBuf),
    /// A repository with a URL.
    Url(String),
}

/// Updates to push.
#[derive(Clone, Debug)]
pub struct Push {
    /// References with new and expected id.
    pub updates: Vec<(String, Oid, Option<Oid>)>,
    /// Other commits that the remote was just seen to have.
    pub there: Vec<Oid>,
}

impl Remote {
    /// Returns a remote that is pulled but not pushed to, without credentials; otherwise with defaults.
    pub fn named(name: impl Into<String>, data_reference: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            data_reference: data_reference.into(),
            policy: Policy::Later,
            scope: Scope::default(),
            fast_forward: true,
            fetch: true,
            push_after_merge: false,
            push_on_pull_failure: false,
            credentials: Credentials::default(),
        }
    }

    fn error(&self, condition: Condition, problem: impl Into<String>) -> RemoteError {
        RemoteError { remote: self.name.clone(), condition, problem: problem.into() }
    }

    /// Returns the location, from the repository's configuration as it is now.
    ///
    /// # Errors
    /// [`RemoteError`] with [`Condition::Failed`] if there is no such remote.
    pub fn location(&self, repository: &Path) -> Result<Location, RemoteError> {
        let failed = |error: git2::Error| self.error(Condition::Failed, error.message());
        let config = git_dir(repository).join("config");
        let config = git2::Config::open(&config).map_err(failed)?;
        let url = config.get_string(&format!("remote.{}.url", self.name)).map_err(|_| {
            let add = format!("git -C {} remote add {} URL", repository.display(), self.name);
            self.error(Condition::Failed, format!("the repository has no such remote; add it with `{add}`"))
        })?;
        if let Some(path) = url.strip_prefix("file://") {
            return Ok(Location::Folder(path.into()));
        }
        let is_path = !url.contains("://") && !url.split('/').next().unwrap_or_default().contains(':');
        Ok(if is_path { Location::Folder(repository.join(url)) } else { Location::Url(url) })
    }

    /// Returns the tracking reference of the remote's `reference`.
    pub fn tracking(&self, reference: &str) -> String {
        let short =
            reference.strip_prefix("refs/heads/").or_else(|| reference.strip_prefix("refs/")).unwrap_or(reference);
        format!("refs/remotes/{}/{short}", self.name)
    }

    /// Fetches the branch to merge and our own branch.
    ///
    /// # Errors
    /// [`RemoteError`]; no tracking reference is moved.
    pub fn fetch(&self, config: &branch::Config, link: &Link) -> Result<Fetched, RemoteError> {
        match self.location(&config.repository)? {
            Location::Folder(folder) => self.fetch_folder(config, link, &folder),
            Location::Url(url) => self.fetch_url(config, link, &url),
        }
    }

    /// Returns a connection for one exchange.
    pub(super) fn reach<'r>(&'r self, here: &'r Path, link: &'r Link, url: &'r str) -> Reach<'r> {
        Reach { here, url, credentials: &self.credentials, session: &link.session, limit: LIMIT }
    }

    fn failed(&self, failed: Failed) -> RemoteError {
        self.error(failed.condition, failed.said)
    }

    fn fetch_url(&self, config: &branch::Config, link: &Link, url: &str) -> Result<Fetched, RemoteError> {
        let here = git_dir(&config.repository);
        let reach = self.reach(&here, link, url);
        let names = [&*self.data_reference, &*config.data_reference, &*config.metadata_reference];
        let [theirs, own, own_metadata] = reach.find(names).map_err(|failed| self.failed(failed))?;
        let known = self.known(config)?;
        let mut wanted: Vec<_> = [(names[0], theirs, known.theirs), (names[1], own, known.own)]
            .into_iter()
            .filter(|(_, there, here)| there != here)
            .filter_map(|(name, there, _)| Some((name.to_owned(), there?, self.tracking(name))))
            .collect();
        wanted.dedup();
        let mut bytes = 0;
        if !wanted.is_empty() {
            let refs = Refs::open(&here).map_err(|error| self.error(Condition::Failed, error.to_string()))?;
            let ours: Vec<Oid> = refs.read(&config.data_reference).ok().flatten().into_iter().collect();
            bytes = reach.fetch(&wanted, &ours, &mut link.fetching.lock()).map_err(|failed| self.failed(failed))?;
        }
        // A reference may have moved between list and fetch: the fetched value counts.
        let now = self.known(config)?;
        Ok(Fetched { theirs: theirs.and(now.theirs), own: own.and(now.own), own_metadata, bytes })
    }

    /// Fetches the remote's commits again with all their objects, except those in the history of our branch, which is complete.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(super) fn fetch_again(&self, config: &branch::Config, link: &Link) -> Result<u64, RemoteError> {
        let here = git_dir(&config.repository);
        let refs = Refs::open(&here).map_err(|error| self.error(Condition::Failed, error.to_string()))?;
        let whole: Vec<Oid> = refs.read(&config.data_reference).ok().flatten().into_iter().collect();
        let known = self.known(config)?;
        let mut wanted: Vec<_> = [(&self.data_reference, known.theirs), (&config.data_reference, known.own)]
            .into_iter()
            .filter_map(|(name, oid)| Some((name.clone(), oid?)))
            .collect();
        wanted.dedup();
        let copier = &mut *link.fetching.lock();
        match self.location(&config.repository)? {
            Location::Folder(folder) => {
                let there = self.repository(&folder)?;
                let here = Repository::open(here).map_err(|error| self.error(Condition::Failed, error.message()))?;
                let wanted: Vec<Oid> = wanted.into_iter().map(|(_, oid)| oid).collect();
                copier.copy_again(&there, &here, &wanted, &whole).map_err(|error| self.transfer(&error, true))
            }
            Location::Url(url) => {
                self.reach(&here, link, &url).fetch_again(&wanted, &whole, copier).map_err(|failed| self.failed(failed))
            }
        }
    }

    /// Fetches more of the history into a shallow repository: `by` commits, or all. Returns whether the repository was shallow.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(super) fn deepen(&self, config: &branch::Config, by: Option<usize>) -> Result<bool, RemoteError> {
        let here = git_dir(&config.repository);
        if !here.join("shallow").exists() {
            return Ok(false);
        }
        let url = match self.location(&config.repository)? {
            // `git` ignores the depth for a path.
            Location::Folder(folder) => {
                let folder = folder.canonicalize().unwrap_or(folder);
                format!("file://{}", folder.display())
            }
            Location::Url(url) => url,
        };
        let mut references = vec![self.data_reference.clone(), config.data_reference.clone()];
        references.dedup();
        program::deepen(&here, &url, &self.credentials, &references, by).map_err(|failed| self.failed(failed))?;
        Ok(true)
    }

    /// Opens the remote's stream of change notifications; `None` if it has none.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(super) async fn events(&self, here: &Path, link: &Link, url: &str) -> Result<Option<Events>, RemoteError> {
        let begun = link
            .session
            .begin(here, url, &self.credentials, Service::Fetch)
            .await
            .map_err(|failed| self.failed(failed))?;
        match begun {
            Some(exchange) => exchange.events().await.map_err(|failed| self.failed(failed)),
            None => Ok(None),
        }
    }

    fn repository(&self, folder: &Path) -> Result<Repository, RemoteError> {
        Repository::open(folder).map_err(|error| self.closed(folder, &error))
    }

    fn refs(&self, folder: &Path) -> Result<Refs, RemoteError> {
        Refs::open(folder).map_err(|error| match error {
            RefError::Open { source, .. } => self.closed(folder, &source),
            error => self.error(Condition::Damaged, error.to_string()),
        })
    }

    fn closed(&self, folder: &Path, error: &git2::Error) -> RemoteError {
        self.error(Condition::Unreachable, format!("{} cannot be opened: {}", folder.display(), error.message()))
    }

    fn fetch_folder(&self, config: &branch::Config, link: &Link, folder: &Path) -> Result<Fetched, RemoteError> {
        let refs = self.refs(folder)?;
        let read = |name: &str| refs.read(name).map_err(|error| self.error(Condition::Damaged, error.to_string()));
        let fetched = Fetched {
            theirs: self.commit(folder, read(&self.data_reference)?),
            own: read(&config.data_reference)?,
            own_metadata: read(&config.metadata_reference)?,
            bytes: 0,
        };
        let known = self.known(config)?;
        if (known.theirs, known.own) == (fetched.theirs, fetched.own) {
            // Opening repositories would cost more than everything else here.
            return Ok(fetched);
        }
        let there = self.repository(folder)?;
        let here = Repository::open(git_dir(&config.repository))
            .map_err(|error| self.error(Condition::Failed, error.message()))?;
        let wanted: Vec<Oid> = [fetched.theirs, fetched.own].into_iter().flatten().collect();
        let copied = link.fetching.lock().copy(&there, &here, &wanted);
        let bytes = copied.map_err(|error| self.transfer(&error, true))?;
        let own = Refs::open(&git_dir(&config.repository))
            .map_err(|error| self.error(Condition::Failed, error.to_string()))?;
        for (reference, found) in [(&self.data_reference, fetched.theirs), (&config.data_reference, fetched.own)] {
            let Some(found) = found else { continue };
            let set = own.note(&self.tracking(reference), found);
            set.map_err(|error| self.error(Condition::Failed, error.to_string()))?;
        }
        Ok(Fetched { bytes, ..fetched })
    }

    /// Returns the commit of the reference to merge, which may be an annotated tag unless it is a branch.
    fn commit(&self, folder: &Path, found: Option<Oid>) -> Option<Oid> {
        if self.data_reference.starts_with("refs/heads/") {
            return found;
        }
        let peeled = |oid: Oid| {
            let repository = Repository::open(folder).ok()?;
            let odb = repository.odb().ok()?;
            Some(object::peeled(&odb, oid))
        };
        found.map(|oid| peeled(oid).unwrap_or(oid))
    }

    fn transfer(&self, error: &TransferError, is_fetch: bool) -> RemoteError {
        let text = gitcd_core::error::chain(error);
        let condition = match error {
            TransferError::Read { .. } if is_fetch => Condition::Damaged,
            TransferError::Write(_) if is_fetch && text.contains("space") => Condition::NoSpace,
            _ => Condition::Failed,
        };
        self.error(condition, text)
    }

    /// Returns what was fetched last, from the tracking references.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn known(&self, config: &branch::Config) -> Result<Fetched, RemoteError> {
        let failed = |error: RefError| self.error(Condition::Failed, error.to_string());
        let refs = Refs::open(&git_dir(&config.repository)).map_err(failed)?;
        let read = |reference: &str| refs.read(&self.tracking(reference)).map_err(failed);
        let theirs = self.commit(&git_dir(&config.repository), read(&self.data_reference)?);
        Ok(Fetched { theirs, own: read(&config.data_reference)?, ..Fetched::default() })
    }

    /// Returns the commits of our branch and its metadata on the remote, without fetching them.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn own(&self, config: &branch::Config, link: &Link) -> Result<Fetched, RemoteError> {
        let names = [&*config.data_reference, &*config.metadata_reference];
        let [own, own_metadata] = match self.location(&config.repository)? {
            Location::Folder(folder) => {
                let refs = self.refs(&folder)?;
                let read = |name| refs.read(name).map_err(|error| self.error(Condition::Damaged, error.to_string()));
                [read(names[0])?, read(names[1])?]
            }
            Location::Url(url) => {
                let here = git_dir(&config.repository);
                self.reach(&here, link, &url).find(names).map_err(|failed| self.failed(failed))?
            }
        };
        Ok(Fetched { own, own_metadata, ..Fetched::default() })
    }

    /// Pushes references in order if they have their expected values; the first is the one that servers race for. Returns the
    /// bytes copied.
    ///
    /// # Errors
    /// [`RemoteError`], with [`Condition::Raced`] if a reference does not have its expected value.
    pub fn push(&self, config: &branch::Config, link: &Link, push: &Push) -> Result<u64, RemoteError> {
        match self.location(&config.repository)? {
            Location::Folder(folder) => self.push_folder(config, link, &folder, push),
            Location::Url(url) => {
                let here = git_dir(&config.repository);
                self.reach(&here, link, &url).push(&push.updates, &push.there).map_err(|failed| self.failed(failed))
            }
        }
    }

    fn push_folder(
        &self,
        config: &branch::Config,
        link: &Link,
        folder: &Path,
        push: &Push,
    ) -> Result<u64, RemoteError> {
        let (there, refs) = (self.repository(folder)?, self.refs(folder)?);
        let here = Repository::open(git_dir(&config.repository))
            .map_err(|error| self.error(Condition::Failed, error.message()))?;
        let wanted: Vec<Oid> = push.updates.iter().map(|(_, new, _)| *new).collect();
        let tips: Vec<Oid> =
            push.updates.iter().filter_map(|(.., old)| *old).chain(push.there.iter().copied()).collect();
        let copied = link.pushing.lock().push(&here, &there, &wanted, &tips);
        let bytes = copied.map_err(|error| self.transfer(&error, false))?;
        for (reference, new, expected) in &push.updates {
            if *expected == Some(*new) {
                continue;
            }
            refs.update(reference, *new, *expected).map_err(|error| {
                let condition = match error {
                    RefError::Moved { .. } | RefError::Locked { .. } => Condition::Raced,
                    _ => Condition::Failed,
                };
                self.error(condition, error.to_string())
            })?;
        }
        Ok(bytes)
    }
}
