//! A repository that knows its remote, and a branch that goes on where the remote has it.
//!
//! This is what comes before `gitcd init` where nothing is kept from one start to the next, as in a pod. It can be repeated after it was ended
//! anywhere: the remote is configured first, the branch itself moves last, and its metadata, which is the authority, just before.

use git2::{ErrorCode, Oid, Repository};
use gitcd_engine::recovery::state_folder;
use gitcd_repo::branch::{self, Config, CreateError};
use gitcd_repo::git_dir;
use gitcd_repo::refs::{RefError, Refs};

use super::remote::{Link, Remote, RemoteError};

/// How a branch begins that is not there yet.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags of their own, not states")]
pub struct Preparation {
    /// Where the remote is: a URL, or a path.
    pub url: String,
    /// Whether our branch must be there.
    pub needs_own: bool,
    /// Whether the branch that is merged into it must be there.
    pub needs_theirs: bool,
    /// Whether ours begins with what the remote has of it. If not, only the remote is configured, and looked at if something must be there.
    pub clone: bool,
    /// Whether ours begins with the commit that theirs has, if it is nowhere.
    pub begin_with_theirs: bool,
}

/// What was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// The branch; nobody was asked.
    Present,
    /// The branch, at the remote, where this one goes on.
    Cloned(Oid),
    /// Theirs, where ours begins.
    BegunWithTheirs(Oid),
    /// Nothing to begin with.
    Nothing,
}

/// Why it is not prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// The repository cannot be made.
    #[error(transparent)]
    Create(Box<CreateError>),
    /// It cannot be read.
    #[error(transparent)]
    Open(Box<branch::OpenError>),
    /// Its configuration cannot be written.
    #[error("cannot configure remote {remote:?}: {said}")]
    Configure {
        /// The remote.
        remote: String,
        /// What the library said.
        said: String,
    },
    /// The remote does not answer as it should.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// A reference cannot be read or moved.
    #[error(transparent)]
    Reference(#[from] RefError),
    /// A branch must be there, and is not.
    #[error("remote {remote:?} has no {reference}, and this server must not create it: push it there first")]
    NoBranch {
        /// The remote.
        remote: String,
        /// What it does not have.
        reference: String,
    },
}

/// Makes the repository if it is not there, configures the remote in it, and begins the branch.
///
/// Blocks, and must be called where blocking is allowed.
///
/// # Errors
/// [`PrepareError`]. The branch is not there then, unless it was before.
pub fn prepare(config: &Config, remote: &Remote, how: &Preparation) -> Result<Prepared, PrepareError> {
    let repository = repository(config)?;
    configure(&repository, &remote.name, &how.url)
        .map_err(|error| PrepareError::Configure { remote: remote.name.clone(), said: error.message().to_owned() })?;
    // Ours is the record from the first time on that it was served.
    if state_folder(config).is_dir() {
        return Ok(Prepared::Present);
    }
    let refs = Refs::open(&git_dir(&config.repository))?;
    let present = refs.read(&config.data_reference)?.is_some();
    let clones = how.clone && !present;
    if !clones && !how.needs_own && !how.needs_theirs {
        return Ok(if present { Prepared::Present } else { Prepared::Nothing });
    }
    let (link, mut remote) = (Link::default(), remote.clone());
    if remote.data_reference.is_empty() {
        remote.data_reference.clone_from(&config.data_reference);
    }
    let found = remote.fetch(config, &link)?;
    let missing =
        |reference: &str| PrepareError::NoBranch { remote: remote.name.clone(), reference: reference.to_owned() };
    if how.needs_own && found.own.is_none() && !present {
        return Err(missing(&config.data_reference));
    }
    if how.needs_theirs && found.theirs.is_none() {
        return Err(missing(&remote.data_reference));
    }
    if !clones {
        return Ok(if present { Prepared::Present } else { Prepared::Nothing });
    }
    match (found.own, found.theirs.filter(|_| how.begin_with_theirs)) {
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

/// As `git remote add`, or `git remote set-url` if it is there.
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
