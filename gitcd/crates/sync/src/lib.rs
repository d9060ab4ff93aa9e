//! Branches that follow one another: fetch, merge into the store, commit, push.
//!
//! [`plan`] computes a merge from two commits; the [store](gitcd_mvcc::merge) takes it in; the committer joins the
//! histories: that is a [`Joiner`]. A [`Puller`] does it for the remotes of one branch, again and again: no write ever waits
//! for it.

pub use gitcd_merge::admit;

pub mod credentials;
pub mod dry_run;
mod join;
pub mod lease;
mod local;
mod notices;
pub mod owner;
mod pace;
pub mod people;
pub mod plan;
pub mod prepare;
pub mod program;
mod puller;
mod reach;
mod remedy;
pub mod remote;
mod smart;
pub mod status;

pub use join::{DryRun, Histories, How, JoinError, Joined, Joiner};
pub use puller::{Config, PullError, Puller};

/// The user agent of requests to remotes: some servers look for `git/` at the beginning.
pub const USER_AGENT: &str = concat!("git/gitcd-", env!("CARGO_PKG_VERSION"));

/// The header in which a Git host of gitcd's names the path of its notifications, in its answer to `info/refs`.
pub const EVENTS_HEADER: &str = "git-events";

/// The access that a Git host requires of a client that pushes gitcd's own references, for error messages.
pub const OWN_ACCESS_HINT: &str = "`access: own` for the user of the token, or --anonymous=own";
