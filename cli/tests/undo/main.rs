//! `trishanku undo`, `restore` and `undelete` on a real kube-apiserver with kube-controller-manager, whose store is a branch.
//!
//! All scenarios share one cluster; each has a namespace of its own.

mod controllers;
mod load;
mod page;
mod page_limits;
mod people;
mod scenarios;
#[path = "../ui/mod.rs"]
mod ui;
mod unavailable;
mod world;
