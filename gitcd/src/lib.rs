//! An etcd v3 server whose history is a Git repository.
//!
//! A write enters through [`api`], gets its revision in [`store`], is durable once in [`journal`], and later becomes a
//! commit through [`committer`] and [`git`]. Watchers ([`watch`]) and the committer follow the store's log; [`recovery`]
//! brings a store back from Git, the [`snapshot`] and the journal. `docs/design/` has the formats on disk.
//!
//! To follow one `put`: `api/kv.rs` and `api/check.rs` here, `lib.rs`, `writer.rs` and `txn.rs` of `gitcd-mvcc`, `writer.rs` of
//! `gitcd-journal`; then, in the background, `committer.rs` here and `branch.rs` of `gitcd-repo`.
//!
//! Start with [`server::Server`] to embed a server, with `main.rs` for the program.

pub use gitcd_core::{durable, fence, keyspace, scope};
pub use gitcd_engine::{backup, committer, compactor, maintenance, recovery};
pub use gitcd_history as history;
pub use gitcd_journal as journal;
pub use gitcd_merge::{self as merge, secrecy};

/// The store of one branch.
pub mod store {
    pub use gitcd_core::revision;
    pub use gitcd_mvcc::*;
}
pub use gitcd_mvcc::snapshot;

/// What gitcd keeps in Git: paths, forms of values, references, and the objects of a branch.
pub mod git {
    pub use gitcd_core::path;
    pub use gitcd_merge::form;
    pub use gitcd_repo::*;
}

pub mod api;
pub mod cli;
pub mod config;
pub mod gateway;
pub mod host;
pub mod http;
pub mod listener;
pub mod metrics;
pub mod proto;
pub mod pull;
pub mod server;
pub mod status;
pub mod telemetry;
pub mod tls;
pub mod transport;
pub mod watch;
