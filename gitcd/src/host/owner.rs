//! Who decides about a reference.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use git2::Oid;

/// A change of a reference that a client asks for. Its objects are in the repository, complete and durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The repository's folder.
    pub repository: PathBuf,
    /// The full name of the reference; `refs/for/<branch>` asks for a merge into the branch.
    pub reference: String,
    /// What it refers to as far as the client knows; `None`: it does not exist.
    pub old: Option<Oid>,
    /// What it shall refer to; `None`: it shall be deleted.
    pub new: Option<Oid>,
    /// Who asks.
    pub user: Option<String>,
}

/// Why an update is refused, in one line for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    reason: String,
}

impl Refusal {
    /// A refusal with this reason; what Git could not show in a line is replaced.
    pub fn new(reason: &str) -> Self {
        const MAX_CHARS: usize = 400;
        let shown = reason.chars().map(|c| if c.is_control() { ' ' } else { c });
        Self { reason: shown.take(MAX_CHARS).collect() }
    }
}

/// Lines for the client about an accepted update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remarks(Vec<String>);

impl Remarks {
    /// Adds a line; what would not be one for a terminal is replaced, and one that is very long is cut.
    pub fn add(&mut self, line: &str) {
        const MAX_CHARS: usize = 1000;
        let shown = line.chars().map(|c| if c.is_control() { ' ' } else { c });
        self.0.push(shown.take(MAX_CHARS).collect());
    }

    /// The lines.
    pub fn lines(&self) -> &[String] {
        &self.0
    }
}

/// Decides and performs updates of references that somebody serves.
pub trait Owner: Debug + Send + Sync {
    /// Somebody who may push has asked where the references of a repository are: a moment without commits lets them win the race.
    fn looked_at(&self, _repository: &Path) {}

    /// Performs an update, or says that it is not its own: the host then makes it by compare-and-swap.
    ///
    /// Nothing may happen before the future is polled, and it must compare [`Update::old`] with what the reference refers to
    /// then (unless it is below `refs/for/`). It is polled to its end even if the client goes away.
    fn update(&self, update: Update) -> Option<BoxFuture<'_, Result<Remarks, Refusal>>>;
}
