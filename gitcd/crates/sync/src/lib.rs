//! Synchronization of a branch with its remotes: fetch, merge into the store, commit, push.
//!
//! A [`Merger`] merges a commit: [`plan`] computes the merge, the [store](gitcd_mvcc::merge) applies it, and the committer makes
//! the merge commit. A [`Puller`] does this continuously for the remotes of one branch. Writes never wait for it.

pub use gitcd_merge::admit;

mod authorities;
pub mod credentials;
pub mod dry_run;
pub mod external;
mod fairness;
mod git_worker;
mod hints;
pub mod lease;
mod link;
mod local;
mod merger;
mod messages;
mod notices;
pub mod owner;
pub mod plan;
pub mod prepare;
pub mod program;
pub mod progress;
mod puller;
pub mod remote;
mod restore;
mod smart;
pub mod status;
mod transport;
mod wire;

pub use merger::{DryRun, HistoryLink, MergeError, MergeOptions, MergeOutcome, Merger};
pub use plan::Provenance;
pub use puller::{Config, PullError, Puller};

/// The user agent of requests to remotes; some servers require the prefix `git/`.
pub const USER_AGENT: &str = concat!("git/gitcd-", env!("CARGO_PKG_VERSION"));

/// The response header of `info/refs` in which a gitcd Git host names the path of its change notifications.
pub const EVENTS_HEADER: &str = "git-events";

/// The access that a Git host requires of a client that pushes gitcd's own references, for error messages.
pub const OWN_ACCESS_HINT: &str = "`access: own` for the user of the token, or --anonymous=own";
