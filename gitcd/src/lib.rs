//! An etcd v3 server whose history is a Git repository.
pub mod git;
pub mod keyspace;
pub mod proto;
