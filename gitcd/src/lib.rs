//! An etcd v3 server whose history is a Git repository.
//!
//! This crate is the program `gitcd`, and re-exports the crates behind it. Start with [`server::Server`] to embed a server.
//!
//! A write enters through [`api`], gets its revision in [`store`], is durable once in [`journal`], and later becomes a
//! commit through [`committer`] and [`git`]. Watchers ([`watch`]) and the committer follow the store's log; [`recovery`]
//! restores a store from Git, the [`snapshot`] and the journal; [`pull`] merges other branches. `docs/architecture.md` follows a
//! put and a pull through the files; `docs/design/` describes the formats on disk.

pub use gitcd_core::program::guard;
pub use gitcd_core::{durable, fence, keyspace, scope};
pub use gitcd_engine::{backup, committer, compactor, maintenance, recovery, uncommitted};
pub use gitcd_history as history;
pub use gitcd_host as host;
pub use gitcd_journal as journal;
pub use gitcd_merge::{self as merge, secrecy};
pub use gitcd_net::{listener, tls, transport};
pub use gitcd_server::{api, config, gateway, http, metrics, proto, server, status, telemetry};
pub use gitcd_sync as pull;

/// The store of one branch.
pub mod store {
    pub use gitcd_core::revision;
    pub use gitcd_mvcc::*;
}
pub use gitcd_mvcc::snapshot;

/// Storage in Git: paths, forms of values, references, and the objects of a branch.
pub mod git {
    pub use gitcd_core::path;
    pub use gitcd_merge::form;
    pub use gitcd_repo::*;
}

/// Watching: which watchers have events to read, and how each stream reads them.
pub mod watch {
    pub use gitcd_mvcc::hub::{Hub, Mailbox, Registration};
    pub use gitcd_server::api::watch::stream;
}

pub mod cli;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
