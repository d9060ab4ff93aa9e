//! What gitcd keeps in Git: paths, value forms, references, and the objects of a branch.
//!
//! Start with [`branch::Branch`]. It edits the [`tree`] of values and the [`trie`] of metadata in memory, writes what
//! changed into a [`pack`], and moves the [`refs`]; [`load`] reads a branch back. The bytes are described in
//! `docs/design/git.md`.

pub mod branch;
pub mod delta;
pub mod entries;
pub mod form;
pub mod line;
pub mod load;
pub mod message;
pub mod pack;
pub mod pack_file;
pub mod pair;
pub mod path;
pub mod refs;
pub mod state;
pub mod tree;
pub mod trie;
