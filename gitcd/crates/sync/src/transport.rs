//! Transports: the ways to reach a remote. One trait, with a strategy for each way; [`choose`] is the only place that chooses.
//!
//! Calls block: an exchange mixes reads and writes of the local repository with the network, and takes one blocking thread from
//! its start to its end, instead of a change of threads at each step.

mod folder;
mod http;
mod program;

use std::path::Path;
use std::time::Duration;

use git2::Oid;
use gitcd_repo::refs::Refs;
use gitcd_repo::transfer::TransferError;

use self::folder::FolderTransport;
use self::http::HttpTransport;
pub(super) use self::program::ProgramTransport;
use super::credentials::Credentials;
use super::remote::{Link, Location};
use super::status::Condition;

/// Default timeout of an exchange with a remote.
pub(super) const LIMIT: Duration = Duration::from_mins(5);

/// A way to reach a remote.
pub(super) trait Transport {
    /// Returns the remote's references, annotated tags peeled.
    fn discover(&self, wanted: Discovery<'_>) -> Result<Vec<(String, Oid)>, TransportError>;

    /// Fetches commits; returns the bytes received.
    fn fetch(&self, request: &FetchRequest<'_>) -> Result<u64, TransportError>;

    /// Moves references that must have their expected values, in order; the first is the one that servers race for. Returns the
    /// bytes sent.
    fn push(&self, push: &Push) -> Result<u64, TransportError>;
}

/// The references to discover.
#[derive(Clone, Copy, Debug)]
pub(super) enum Discovery<'n> {
    /// Those with these names.
    Names(&'n [&'n str]),
    /// Those whose names start with this.
    Prefix(&'n str),
}

/// A reference to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Its name on the remote.
    pub(super) name: String,
    /// Its value there.
    pub(super) oid: Oid,
    /// Its tracking reference here.
    pub(super) tracking: String,
}

/// What to fetch.
#[derive(Clone, Debug)]
pub(super) struct FetchRequest<'r> {
    pub(super) wanted: &'r [Wanted],
    /// Commits of ours that the remote may have.
    pub(super) own: &'r [Oid],
    pub(super) objects: Objects,
}

/// Which objects of the wanted commits are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Objects {
    /// Those that are missing here. Moves the tracking references.
    Missing,
    /// All that are not in the history of `own`, even if they exist here, because an earlier fetch was incomplete.
    All,
}

/// A reference, its new value, and its expected value.
pub(super) type Update = (String, Oid, Option<Oid>);

/// Updates to push.
#[derive(Clone, Debug)]
pub struct Push {
    /// References with new and expected id.
    pub updates: Vec<Update>,
    /// Other commits that the remote was just seen to have.
    pub there: Vec<Oid>,
}

/// Why an exchange with a remote failed.
#[derive(Debug)]
pub(super) struct TransportError {
    pub(super) condition: Condition,
    pub(super) cause: Cause,
    pub(super) said: String,
}

/// The cause of a failure, for what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// None of the others, or unknown.
    Other,
    /// The remote requires other credentials.
    Unauthenticated,
    /// The host requires a token of gitcd itself; its message says so.
    OwnAccess,
    /// No trusted authority has issued the remote's certificate.
    UntrustedCertificate,
    /// The SSH host key of the remote is unknown.
    UnknownHostKey,
    /// The remote does not support atomic pushes.
    NotAtomic,
}

impl TransportError {
    pub(super) fn new(condition: Condition, said: impl std::fmt::Display) -> Self {
        Self { condition, cause: Cause::Other, said: said.to_string() }
    }

    pub(super) fn with_cause(self, cause: Cause) -> Self {
        Self { cause, ..self }
    }

    /// An error of the local repository.
    fn here(error: impl std::fmt::Display) -> Self {
        Self::new(Condition::Failed, error)
    }

    /// An error of objects on their way to the local repository.
    fn received(error: &TransferError) -> Self {
        let condition = match error {
            TransferError::Read { .. } | TransferError::TooLarge => Condition::Damaged,
            TransferError::Write(error) if is_full(error) => Condition::NoSpace,
            _ => Condition::Failed,
        };
        Self::new(condition, gitcd_core::error::chain(error))
    }
}

/// Returns whether an error is caused by a full disk, or an exceeded quota.
pub(super) fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| {
            matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
        })
    })
}

/// The local side of an exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local<'r> {
    /// The local Git directory.
    pub(super) git_dir: &'r Path,
    pub(super) credentials: &'r Credentials,
    pub(super) link: &'r Link,
    /// The timeout of each exchange over a network.
    pub(super) limit: Duration,
}

/// Returns the transport for a location.
pub(super) fn choose<'r>(local: Local<'r>, location: &'r Location) -> Box<dyn Transport + 'r> {
    match location {
        Location::Folder(folder) => Box::new(FolderTransport { local, folder }),
        Location::Url(url) => {
            let program = ProgramTransport { local, url };
            if url.starts_with("http://") || url.starts_with("https://") {
                Box::new(HttpTransport { program })
            } else {
                Box::new(program)
            }
        }
    }
}

/// Moves the tracking references of what was fetched.
fn track(git_dir: &Path, wanted: &[Wanted]) -> Result<(), TransportError> {
    let refs = Refs::open(git_dir).map_err(TransportError::here)?;
    for Wanted { oid, tracking, .. } in wanted {
        refs.note(tracking, *oid).map_err(TransportError::here)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::is_full;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot write")]
    struct Wrapped(#[source] Error);

    #[test]
    fn a_full_disk_is_recognized_by_its_kind_and_not_by_a_name_with_space_in_it() {
        assert!(is_full(&Wrapped(Error::from(ErrorKind::StorageFull))));
        assert!(is_full(&Wrapped(Error::from(ErrorKind::QuotaExceeded))));
        assert!(!is_full(&Wrapped(Error::other("/workspace: permission denied"))));
    }
}
