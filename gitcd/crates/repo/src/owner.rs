//! The owner of references, which decides about the updates that clients request.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use git2::Oid;

/// An update of a reference that a client requests. Its objects are in the repository, complete and durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The repository's folder.
    pub repository: PathBuf,
    /// The full name of the reference; `refs/for/<branch>` asks for a merge into the branch.
    pub reference: String,
    /// The object that the client expects it to refer to; `None`: the client expects no such reference.
    pub old: Option<Oid>,
    /// The object that it is to refer to; `None`: it is to be deleted.
    pub new: Option<Oid>,
    /// The user who requests it, if authenticated.
    pub user: Option<String>,
    /// Whether the user may push as a gitcd: then commits with a message of gitcd count as accepted.
    pub is_gitcd: bool,
}

/// The reason why an update is refused, in one line for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    reason: String,
}

impl Refusal {
    /// Returns a refusal with this reason, without control characters and cut to 400 characters.
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
    /// Adds a line, without control characters and cut to 1,000 characters.
    pub fn add(&mut self, line: &str) {
        const MAX_CHARS: usize = 1000;
        let shown = line.chars().map(|c| if c.is_control() { ' ' } else { c });
        self.0.push(shown.take(MAX_CHARS).collect());
    }

    /// Returns the lines.
    pub fn lines(&self) -> &[String] {
        &self.0
    }
}

/// An update that an [`Owner`] performs once it is polled.
pub type Updating<'o> = Pin<Box<dyn Future<Output = Result<Remarks, Refusal>> + Send + 'o>>;

/// Decides about updates of served references, and performs them.
pub trait Owner: Debug + Send + Sync {
    /// Called when a client that may push lists the references of a repository: pausing commits lets its push win the race.
    fn looked_at(&self, _repository: &Path) {}

    /// Performs an update, or returns `None` if the reference is not its own: the host then updates it by compare-and-swap.
    ///
    /// Nothing may happen before the future is polled, and it must compare [`Update::old`] with what the reference refers to then
    /// (unless it is below `refs/for/`). The host polls it to its end even if the client disconnects.
    fn update(&self, update: Update) -> Option<Updating<'_>>;
}
