//! A whole branch in one file: what the Maintenance service sends as a snapshot and `gitcd restore` reads.
//!
//! The file has all keys, their history since the compaction and the leases, but not Git's history: for that, clone the
//! repository. `docs/design/backup.md` draws it.
//!
//! ```
//! # use gitcd_engine::backup;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Whatever it is, a person finds out by looking at its first line.
//! assert!(backup::MAGIC.starts_with(b"gitcd snapshot"));
//! # Ok(())
//! # }
//! ```

mod read;
mod write;

pub use read::{Backup, ReadError};
pub use write::write;

/// The first line of the file.
pub const MAGIC: &[u8] = b"gitcd snapshot 1\n";
/// The content is filled up to a multiple of this, since `etcdctl` takes a file of any other size for cut off.
const BLOCK: u64 = 512;
/// SHA-256 of everything before it is the end of the file.
const DIGEST: usize = 32;
/// A frame is closed once it is this large.
const FRAME_BYTES: usize = 1 << 20;

/// The second line of the file, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Header {
    /// The newest revision.
    pub revision: i64,
    /// The pairs at the beginning are those of this revision; writes after it follow.
    pub base: i64,
    /// The compact revision, or 0.
    pub compact_revision: i64,
    /// Number of pairs at the base.
    pub pairs: usize,
    /// The version of gitcd that wrote it.
    pub gitcd: String,
}

#[cfg(test)]
mod tests;
