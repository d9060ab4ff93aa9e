//! An etcd v3 server whose history is a Git repository.
pub mod proto;
