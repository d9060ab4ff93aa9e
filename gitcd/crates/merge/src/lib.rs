//! Three-way merge of two branches: by keys, then by fields, never by lines.
//!
//! Pure: bytes in, bytes out. [`merge`] has the rules for one key. Which keys to merge, with which base, comes from Git; the
//! store applies the outcome to a branch. The rules, with their reasons, are in `docs/design/merge.md`.
//!
//! ```
//! use gitcd_merge::schema::Schemas;
//! use gitcd_merge::{Outcome, Policy, Side, merge};
//!
//! let base = br#"{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"1","b":"1"}}"#;
//! let ours = br#"{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"2","b":"1"}}"#;
//! let theirs = br#"{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"1","b":"3"}}"#;
//! let merged = merge(&Schemas::builtin(), Policy::Later, Some(base), Some(Side::of(ours)), Some(Side::of(theirs)));
//! let both = br#"{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"2","b":"3"}}"#;
//! assert_eq!(merged.outcome, Outcome::New(both.to_vec()));
//! assert!(merged.conflicts.is_empty());
//! ```

mod absence;
pub mod admit;
mod authorship;
mod conflict;
mod deletion;
mod fields;
pub mod form;
mod metadata;
mod object;
mod owners;
pub mod protobuf;
pub mod schema;
pub mod secrecy;
mod secret;
mod syntax;
#[cfg(test)]
mod tests;
pub mod value;
pub mod yaml;

/// The version of the rules that determine the merged bytes. Versions of gitcd with the same number make the same bytes from the
/// same commits.
pub const RULES: u32 = 6;

pub use conflict::Conflict;
pub use deletion::is_terminating;
pub use fields::{ItemId, item_ids, taken_together};
pub use object::{
    Merged, Outcome, Policy, Side, blob_hash, differ_in_spelling_only, has_edit_of_a_person, identity, merge,
    normalized, uid,
};
pub use value::MAX_BYTES;
