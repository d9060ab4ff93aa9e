//! A gitcd branch in Git: paths, value forms, references, and objects.
//!
//! Start with [`branch::Branch`]. It edits the `tree` of values and the `trie` of metadata in memory, writes changes into a
//! `pack`, and moves the [`refs`]; `load` reads a branch back. `docs/design/git.md` describes the format.
//! The [example](branch) creates a branch, and writes one commit.

pub mod actor;
pub mod alternates;
pub mod boundary;
pub mod branch;
pub mod changes;
mod committed_heads;
pub mod countdown;
mod delta;
pub mod derive;
mod entries;
pub mod follow;
pub mod go;
pub mod graph;
pub mod history_link;
mod key_record;
mod load;
pub mod lookup;
pub(crate) mod loose;
pub mod message;
pub mod object;
mod own_folder;
pub mod owner;
mod pack;
mod pack_file;
mod pack_spill;
pub mod partial;
pub mod pkt_line;
pub mod reader;
pub mod received;
pub mod refs;
mod state;
mod temporary;
pub mod transfer;
mod tree;
mod trie;
pub mod verify;
pub mod watch;

use std::path::{Path, PathBuf};

/// Returns the folder with the objects and references of a repository: the given folder, or `.git` in it.
pub fn git_dir(repository: &Path) -> PathBuf {
    let inner = repository.join(".git");
    if inner.is_dir() { inner } else { repository.to_owned() }
}
