//! Tables of named cases: for each method everything that a client may try, in every state of the server that could matter.
//!
//! The name of a case is a step of the transcript, so that a difference can be located by it.

mod auth;
mod cluster;
mod elections;
mod leases;
mod locks;
mod maintenance;
mod members;
mod snapshots;
mod states;
mod users;
