//! The journal, which makes a write durable before it is acknowledged.
//!
//! A branch's journal is a folder of segments. A segment is a header and frames. A frame holds the records of all writes that
//! share one fsync, under one checksum. So a torn write damages only the last frame, in which nothing was acknowledged.
//! `docs/design/journal.md` describes the format.
//!
//! [`Writer`] appends, [`recovery`] replays, [`Segments`] reads back values that were evicted from memory.

mod prefixes;
pub mod record;
pub mod recovery;
mod segment;
mod writer;

pub use segment::{Position, Segments};
pub use writer::{AppendError, Writer};

#[doc(hidden)]
pub use writer::fault;
