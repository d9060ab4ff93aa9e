//! The journal: what makes a write durable before it is acknowledged.
//!
//! A branch's journal is a folder of segments. A segment is a header and frames; a frame is what one
//! fsync made durable: the records of all writes that shared it, under one checksum. So a torn write
//! damages exactly the last frame, and nothing in it was acknowledged. `docs/design/journal.md` draws it.
//!
//! [`Writer`] appends, [`recovery`] replays, [`Segments`] finds values that left memory.

mod prefixes;
pub mod record;
pub mod recovery;
mod segment;
mod writer;

pub use segment::{Position, Segments};
pub use writer::{AppendError, Writer};

#[doc(hidden)]
pub use writer::fault;
