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

use self::folder::FolderTransport;
use self::http::HttpTransport;
pub(super) use self::program::ProgramTransport;
use super::credentials::Credentials;
use super::link::{Link, Location};
pub(super) use super::wire::{TransportError, Update};

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

/// Updates to push.
#[derive(Clone, Debug)]
pub struct Push {
    /// References with new and expected id.
    pub updates: Vec<Update>,
    /// Other commits that the remote was just seen to have.
    pub there: Vec<Oid>,
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
