//! `trishanku undo`, `restore` and `undelete` on a real kube-apiserver with kube-controller-manager, whose store is a branch.
//!
//! All scenarios share one cluster; each has a namespace of its own.

#[path = "../../../crates/page/tests/page/client.rs"]
#[allow(dead_code, reason = "the tests of the page use more of it")]
mod client;
mod controllers;
mod load;
mod page;
mod scenarios;
mod world;
