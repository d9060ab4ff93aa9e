//! What every part of gitcd stands on: keys and their paths in Git, revisions, durable files, and the fence of a writer.
//!
//! Depends on nothing of gitcd. Each module is one idea and none uses another, but for [`durable`] errors.

pub mod durable;
pub mod error;
pub mod fence;
pub mod keyspace;
pub mod lease;
pub mod path;
pub mod program;
pub mod revision;
pub mod scope;
pub mod trace;
