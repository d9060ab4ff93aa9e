//! Remotes: fetches from other repositories, and pushes to them.

use std::path::Path;

use git2::{Oid, Repository};
use gitcd_core::scope::Scope;
use gitcd_merge::Policy;
use gitcd_repo::alternates::ObjectsInUse;
use gitcd_repo::git_dir;
use gitcd_repo::refs::{RefError, Refs};
use gitcd_repo::{branch, object};

use super::credentials::Credentials;
pub use super::link::{Link, Location};
use super::program;
use super::smart::{Events, Service};
use super::status::Condition;
pub use super::transport::Push;
use super::transport::{self, Discovery, FetchRequest, Local, Objects, Transport, Wanted};
use super::wire::{Cause, LIMIT, TransportError};

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
    /// The cause, for what to do about it.
    pub(super) cause: Cause,
}

impl RemoteError {
    /// Returns an error without a known cause.
    pub(super) fn new(remote: &str, condition: Condition, problem: impl Into<String>) -> Self {
        Self { remote: remote.to_owned(), condition, problem: problem.into(), cause: Cause::Other }
    }
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
        RemoteError::new(&self.name, condition, problem)
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
        let (git_dir, location) = (git_dir(&config.repository), self.location(&config.repository)?);
        let transport = transport::choose(self.local(&git_dir, link), &location);
        let names = [&*self.data_reference, &*config.data_reference, &*config.metadata_reference];
        let [theirs, own, own_metadata] = self.find(&*transport, names)?;
        let known = self.known(config)?;
        let mut wanted: Vec<_> = [(names[0], theirs, known.theirs), (names[1], own, known.own)]
            .into_iter()
            .filter(|(_, there, here)| there != here)
            .filter_map(|(name, there, _)| {
                Some(Wanted { name: name.to_owned(), oid: there?, tracking: self.tracking(name) })
            })
            .collect();
        wanted.dedup();
        if wanted.is_empty() {
            return Ok(Fetched { theirs, own, own_metadata, bytes: 0 });
        }
        // The remote does not send what our commits have as ancestors, also where our history was cut. What is here of that is not pruned
        // until the tracking references lead to it.
        let in_use = self.to_receive(&git_dir)?;
        let ours = self.read_own(&git_dir, &config.data_reference)?;
        let request = FetchRequest { wanted: &wanted, own: &ours, objects: Objects::Missing };
        let bytes = transport.fetch(&request).map_err(|failed| self.failed(failed))?;
        drop(in_use);
        // A reference may have moved between list and fetch: the fetched value counts.
        let now = self.known(config)?;
        Ok(Fetched { theirs: theirs.and(now.theirs), own: own.and(now.own), own_metadata, bytes })
    }

    /// Marks the objects of the repository in this folder as being read while commits are fetched into it.
    pub(super) fn to_receive(&self, git_dir: &Path) -> Result<ObjectsInUse, RemoteError> {
        ObjectsInUse::to_receive(git_dir).map_err(|error| self.error(Condition::Failed, error.to_string()))
    }

    /// Returns the local side of exchanges with the remote.
    pub(super) fn local<'r>(&'r self, git_dir: &'r Path, link: &'r Link) -> Local<'r> {
        Local { git_dir, credentials: &self.credentials, link, limit: LIMIT }
    }

    fn failed(&self, failed: TransportError) -> RemoteError {
        RemoteError { cause: failed.cause, ..self.error(failed.condition, failed.said) }
    }

    /// Returns the remote's values of these references.
    pub(super) fn find<const N: usize>(
        &self,
        transport: &dyn Transport,
        names: [&str; N],
    ) -> Result<[Option<Oid>; N], RemoteError> {
        let all = transport.discover(Discovery::Names(&names)).map_err(|failed| self.failed(failed))?;
        Ok(names.map(|name| all.iter().find(|(found, _)| found == name).map(|(_, oid)| *oid)))
    }

    fn read_own(&self, git_dir: &Path, reference: &str) -> Result<Vec<Oid>, RemoteError> {
        let refs = Refs::open(git_dir).map_err(|error| self.error(Condition::Failed, error.to_string()))?;
        Ok(refs.read(reference).ok().flatten().into_iter().collect())
    }

    /// Fetches the remote's commits again with all their objects, except those in the history of our branch, which is complete.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(super) fn fetch_again(&self, config: &branch::Config, link: &Link) -> Result<u64, RemoteError> {
        let (git_dir, location) = (git_dir(&config.repository), self.location(&config.repository)?);
        let _in_use = self.to_receive(&git_dir)?;
        let whole = self.read_own(&git_dir, &config.data_reference)?;
        let known = self.known(config)?;
        let mut wanted: Vec<_> = [(&self.data_reference, known.theirs), (&config.data_reference, known.own)]
            .into_iter()
            .filter_map(|(name, oid)| Some(Wanted { name: name.clone(), oid: oid?, tracking: self.tracking(name) }))
            .collect();
        wanted.dedup();
        let request = FetchRequest { wanted: &wanted, own: &whole, objects: Objects::All };
        let transport = transport::choose(self.local(&git_dir, link), &location);
        transport.fetch(&request).map_err(|failed| self.failed(failed))
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
        let _in_use = self.to_receive(&here)?;
        program::deepen(&here, &url, &self.credentials, &references, by).map_err(|failed| self.failed(failed))?;
        Ok(true)
    }

    /// Opens the remote's stream of change notifications; `None` if it has none.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(super) async fn events(&self, here: &Path, link: &Link, url: &str) -> Result<Option<Events>, RemoteError> {
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Ok(None);
        }
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
        let (git_dir, location) = (git_dir(&config.repository), self.location(&config.repository)?);
        let transport = transport::choose(self.local(&git_dir, link), &location);
        let [own, own_metadata] = self.find(&*transport, [&config.data_reference, &config.metadata_reference])?;
        Ok(Fetched { own, own_metadata, ..Fetched::default() })
    }

    /// Pushes references in order if they have their expected values; the first is the one that servers race for. Returns the
    /// bytes copied.
    ///
    /// # Errors
    /// [`RemoteError`], with [`Condition::Raced`] if a reference does not have its expected value.
    pub fn push(&self, config: &branch::Config, link: &Link, push: &Push) -> Result<u64, RemoteError> {
        let (git_dir, location) = (git_dir(&config.repository), self.location(&config.repository)?);
        let transport = transport::choose(self.local(&git_dir, link), &location);
        transport.push(push).map_err(|failed| self.failed(failed))
    }
}
