//! What gitcd keeps in Git: paths, value forms, references, and the objects of a branch.
//!
//! Start with [`branch::Branch`]. It edits the `tree` of values and the `trie` of metadata in memory, writes what
//! changed into a `pack`, and moves the [`refs`]; `load` reads a branch back. The bytes are described in
//! `docs/design/git.md`.

pub use gitcd_core::path;
pub use gitcd_merge::form;

pub mod branch;
pub mod changes;
pub(crate) mod countdown;
mod delta;
pub mod derive;
mod entries;
pub(crate) mod follow;
pub(crate) mod go;
pub mod graph;
pub(crate) mod join;
mod line;
mod load;
pub mod lookup;
pub(crate) mod loose;
pub(crate) mod message;
pub(crate) mod object;
mod pack;
mod pack_file;
mod pair;
pub(crate) mod pkt_line;
pub mod reader;
pub(crate) mod received;
pub mod refs;
mod state;
pub mod transfer;
mod tree;
mod trie;
pub mod verify;
pub mod watch;
