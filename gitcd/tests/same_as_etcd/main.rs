//! For every request, gitcd answers like a real etcd: the same values, revisions, codes and messages.
//!
//! Every case runs on both servers; etcd is the reference, not a list of expected answers.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each test program uses a part of it")]
mod support;

#[path = "../tls/authority.rs"]
#[allow(dead_code, reason = "each test program uses a part of it")]
mod authority;

mod alarm;
mod auth;
mod compact;
mod comparison;
mod concurrency;
mod delete;
mod election;
mod export;
mod families;
mod flags;
mod gateway;
mod health;
mod lease;
mod limits;
mod lock;
mod maintenance;
mod migrate;
mod named;
mod protocol;
mod put;
mod random;
mod range;
mod txn;
mod txn_compare;
mod txn_revisions;
mod txn_twice;
mod watch;
mod watch_start;
