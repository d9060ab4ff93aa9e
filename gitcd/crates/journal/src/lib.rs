//! The journal, which makes a write durable before it is acknowledged.
//!
//! A branch's journal is a folder of segments. A segment is a header and frames. A frame holds the records of all writes that
//! share one fsync, under one checksum. So a torn write damages only the last frame, in which nothing was acknowledged.
//! `docs/design/journal.md` describes the format.
//!
//! [`Writer`] appends, [`recovery`] replays, [`Segments`] reads back values that were evicted from memory, [`tail`] reads what
//! another process writes.
//!
//! ```
//! use std::sync::Arc;
//!
//! use gitcd_core::revision::Revision;
//! use gitcd_journal::record::{Change, Put, Record, Write};
//! use gitcd_journal::{Segments, Writer, recovery};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let revision = Revision::new(2);
//! let put = Put { create_revision: revision, version: 1, lease: 0, value: "1".into(), value_offset: 0 };
//! let changes = vec![Change { key: "/a".into(), put: Some(put) }];
//! let write = Write { revision, time_ms: 0, client: "curl/8.19.0".into(), changes };
//!
//! let mut journal = Writer::create(folder, [7; 16], 0, 1 << 20, Arc::default())?;
//! Record::Write(write).encode(journal.begin());
//! // The write is durable when this returns.
//! journal.commit(revision)?;
//!
//! // After a crash:
//! let mut replayed = Vec::new();
//! recovery::recover(folder, &Segments::default(), |found| replayed.push(found.record))?;
//! assert!(matches!(&replayed[..], [Record::Write(write)] if write.revision == revision));
//! # Ok(())
//! # }
//! ```

mod prefixes;
pub mod record;
pub mod recovery;
mod segment;
pub mod tail;
mod writer;

pub use segment::{Position, Segments};
pub use writer::{AppendError, Writer};

#[doc(hidden)]
pub use writer::fault;
