//! A whole branch in one file, which the Maintenance service sends as a snapshot and `gitcd restore` reads.
//!
//! `gitcd restore` also reads snapshots of etcd, which are another format. [`write_etcd`] writes them.
//!
//! The file has all keys, their history since the compaction and the leases, but not Git's history: for that, clone the
//! repository. `docs/design/backup.md` describes the format.
//!
//! ```
//! # use gitcd_engine::backup;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The first line says what the file is.
//! assert!(backup::MAGIC.starts_with(b"gitcd snapshot"));
//! # Ok(())
//! # }
//! ```

mod bolt;
mod etcd;
mod read;
mod write;

pub use etcd::write::write_etcd;
pub use read::{Backup, ReadError};
pub use write::write;

/// The first line of the file.
pub const MAGIC: &[u8] = b"gitcd snapshot 1\n";
/// The content is padded to a multiple of this: `etcdctl` takes a file of any other size for truncated.
const BLOCK: u64 = 512;
/// The file ends with the SHA-256 of everything before it.
const DIGEST: usize = 32;
/// Size at which a frame is closed.
const FRAME_BYTES: usize = 1 << 20;

/// The second line of the file, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Header {
    /// The newest revision.
    pub revision: i64,
    /// The file starts with the key-value pairs at this revision; the writes after it follow.
    pub base: i64,
    /// The compact revision, or 0.
    pub compact_revision: i64,
    /// Number of key-value pairs at the base.
    pub pairs: usize,
    /// The version of gitcd that wrote the file; empty if an etcd did.
    pub gitcd: String,
}

#[cfg(test)]
mod tests;
