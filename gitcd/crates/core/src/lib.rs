//! The foundations of gitcd: keys and their paths in Git, revisions, durable files, and the fence of a writer.
//!
//! This crate depends on no other crate of gitcd. Only [`blocking`] uses another module of it.

pub mod blocking;
pub mod descriptors;
pub mod durable;
pub mod fence;
pub mod keyspace;
pub mod lease;
pub mod path;
pub mod program;
pub mod revision;
pub mod scope;
pub mod supervisor;
pub mod trace;

pub use trishanku_service::{error, plain_http};
