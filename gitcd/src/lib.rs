//! An etcd v3 server whose history is a Git repository.
pub mod api;
pub mod git;
pub mod journal;
pub mod keyspace;
pub mod proto;
pub mod store;
pub mod watch;
