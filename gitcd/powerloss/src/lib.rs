//! An in-memory file system that loses power, for tests with real programs.
//!
//! Programs see an ordinary file system. In addition, it tracks what a disk would have: the content of a file is durable after an
//! fsync of the file, an entry of a folder after an fsync of the folder. [`Disk::cut`] simulates a power loss: every write that
//! is not durable is kept, dropped or torn at sectors of 512 bytes, every change of a folder is kept or dropped, by a seed
//! ([`Order`] limits the combinations). [`Disk::arm`] freezes the file system in the middle of a call, as seen by a program that
//! never gets an answer.
//!
//! ```no_run
//! use std::time::Duration;
//! use gitcd_powerloss::{Disk, Moment, Order};
//!
//! let disk = Disk::new(Order::None);
//! let mount = disk.mount("/mnt".as_ref())?;
//! disk.arm(Moment::after(1000));
//! // … run a program on /mnt …
//! disk.wait_until_frozen(Duration::from_secs(10));
//! // … kill it; then its calls end, too:
//! disk.release();
//! drop(mount);
//! println!("{:?}", disk.cut(42, Duration::ZERO));
//! let mount = disk.mount("/mnt".as_ref())?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Needs Linux, `/dev/fuse` and root.

mod content;
mod disk;
mod fuse;
mod log;
mod mount;
mod tree;

pub use disk::{Disk, Moment};
pub use mount::{Mount, why_not};

/// The order in which changes of folders reach the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// No order: each change is lost or kept independently until its folder is synced, which is all that POSIX promises.
    None,
    /// The order in which they were made, up to some point. An fsync of a file or a folder makes all changes durable up to the
    /// last one that concerns it, as in file systems with a journal, such as ext4 and XFS.
    Kept,
}

/// What happened at a power loss to changes that were not durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Writes and changes of a file's size that were kept.
    pub kept_writes: usize,
    /// Writes and changes of a file's size that were dropped.
    pub dropped_writes: usize,
    /// Writes that were partly kept.
    pub torn_writes: usize,
    /// Changes of folders that were kept.
    pub kept_entries: usize,
    /// Changes of folders that were dropped.
    pub dropped_entries: usize,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.kept_writes += other.kept_writes;
        self.dropped_writes += other.dropped_writes;
        self.torn_writes += other.torn_writes;
        self.kept_entries += other.kept_entries;
        self.dropped_entries += other.dropped_entries;
    }
}

impl Tally {
    /// Returns whether all changes were durable.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
