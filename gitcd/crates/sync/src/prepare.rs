//! Preparation of a repository with a remote, and of a branch that continues from the remote's.
//!
//! It precedes `gitcd init` where no state survives a restart, as in a pod. It can be repeated after a crash at any point: the
//! remote is configured first, the branch moves last, and its metadata, which is authoritative, just before it.

use git2::{ErrorCode, Oid, Repository};
use gitcd_engine::recovery::state_folder;
use gitcd_repo::branch::{self, Config, CreateError};
use gitcd_repo::git_dir;
use gitcd_repo::refs::{RefError, Refs};

use super::progress::FetchProgress;
use super::remote::{Link, Remote, RemoteError};

/// Options for the preparation of a branch.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags of their own, not states")]
pub struct Preparation {
    /// URL or path of the remote.
    pub url: String,
    /// Whether the remote must have our branch.
    pub needs_own: bool,
    /// Whether the remote must have the branch that is merged into ours.
    pub needs_theirs: bool,
    /// Whether to create our branch from the remote's. Otherwise only the remote is configured, and its branches checked if
    /// required.
    pub clone: bool,
    /// Whether to create our branch from theirs if the remote does not have ours.
    pub begin_with_theirs: bool,
    /// Counts what is fetched.
    pub progress: FetchProgress,
}

/// The outcome of a preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// The branch existed here.
    Present,
    /// The branch was created from the remote's, at this commit.
    Cloned(Oid),
    /// The branch was created from theirs, at this commit.
    BegunWithTheirs(Oid),
    /// The branch was not created.
    Nothing,
}

/// Why a branch was not prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// The repository cannot be created.
    #[error(transparent)]
    Create(Box<CreateError>),
    /// The repository cannot be opened.
    #[error(transparent)]
    Open(Box<branch::OpenError>),
    /// The remote cannot be configured.
    #[error("cannot configure remote {remote:?}: {said}")]
    Configure {
        /// The remote.
        remote: String,
        /// The error of libgit2.
        said: String,
    },
    /// An exchange with the remote failed.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// A reference cannot be read or moved.
    #[error(transparent)]
    Reference(#[from] RefError),
    /// The remote lacks a required branch.
    #[error("remote {remote:?} has no {reference}, and this server must not create it: push it there first")]
    NoBranch {
        /// The remote.
        remote: String,
        /// The reference that it lacks.
        reference: String,
    },
}

/// Creates the repository if it does not exist, configures the remote in it, and creates the branch.
///
/// Blocks; call it only where blocking is allowed.
///
/// # Errors
/// [`PrepareError`]; the branch is not created then.
pub fn prepare(config: &Config, remote: &Remote, options: &Preparation) -> Result<Prepared, PrepareError> {
    let repository = repository(config)?;
    configure(&repository, &remote.name, &options.url)
        .map_err(|error| PrepareError::Configure { remote: remote.name.clone(), said: error.message().to_owned() })?;
    // Once the branch was served here, our own state is authoritative.
    if state_folder(config).is_dir() {
        return Ok(Prepared::Present);
    }
    let refs = Refs::open(&git_dir(&config.repository))?;
    let present = refs.read(&config.data_reference)?.is_some();
    let clones = options.clone && !present;
    if !clones && !options.needs_own && !options.needs_theirs {
        return Ok(if present { Prepared::Present } else { Prepared::Nothing });
    }
    let (link, mut remote) = (Link::counted(options.progress.clone()), remote.clone());
    if remote.data_reference.is_empty() {
        remote.data_reference.clone_from(&config.data_reference);
    }
    let found = remote.fetch(config, &link)?;
    let missing =
        |reference: &str| PrepareError::NoBranch { remote: remote.name.clone(), reference: reference.to_owned() };
    if options.needs_own && found.own.is_none() && !present {
        return Err(missing(&config.data_reference));
    }
    if options.needs_theirs && found.theirs.is_none() {
        return Err(missing(&remote.data_reference));
    }
    if !clones {
        return Ok(if present { Prepared::Present } else { Prepared::Nothing });
    }
    match (found.own, found.theirs.filter(|_| options.begin_with_theirs)) {
        (Some(own), _) => {
            if found.own_metadata.is_some() {
                let metadata = Remote { data_reference: config.metadata_reference.clone(), ..remote };
                if let Some(oid) = metadata.fetch(config, &link)?.theirs {
                    refs.set(&config.metadata_reference, oid)?;
                }
            }
            refs.set(&config.data_reference, own)?;
            Ok(Prepared::Cloned(own))
        }
        (None, Some(theirs)) => {
            refs.set(&config.data_reference, theirs)?;
            Ok(Prepared::BegunWithTheirs(theirs))
        }
        (None, None) => Ok(Prepared::Nothing),
    }
}

fn repository(config: &Config) -> Result<Repository, PrepareError> {
    let opened = branch::open_repository(&config.repository).map_err(|error| PrepareError::Open(Box::new(error)))?;
    match opened {
        Some(repository) => Ok(repository),
        None => branch::init_repository(config).map_err(|error| PrepareError::Create(Box::new(error))),
    }
}

/// Works like `git remote add`, or `git remote set-url` if the remote exists.
fn configure(repository: &Repository, name: &str, url: &str) -> Result<(), git2::Error> {
    let mut config = repository.config()?;
    let refspec = format!("+refs/heads/*:refs/remotes/{name}/*");
    for (key, value) in [("url", url), ("fetch", &refspec)] {
        let key = format!("remote.{name}.{key}");
        match config.get_string(&key) {
            Ok(present) if present == value => {}
            Err(error) if error.code() != ErrorCode::NotFound => return Err(error),
            _ => config.set_str(&key, value)?,
        }
    }
    Ok(())
}
