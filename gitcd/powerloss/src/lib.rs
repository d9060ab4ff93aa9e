//! A file system in memory that loses power, to run real programs on.
//!
//! Programs see an ordinary file system. Beside that, it knows what a disk would have: the content of a file is durable after an fsync of the
//! file, an entry of a folder after an fsync of the folder. [`Disk::cut`] is a loss of power: every write that was not made durable is kept, dropped or torn at
//! sectors of 512 bytes, every change of a folder kept or dropped, by a seed ([`Order`] says how freely). [`Disk::arm`] stops the file system in the middle
//! of any call, as seen from a program that never gets an answer.
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

/// In which order changes of folders come to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In none: each is lost or kept by itself until its folder is synced, which is all that POSIX promises.
    None,
    /// In that in which they were made, up to some point; an fsync of a file or a folder brings the disk at least up to the last change that concerns
    /// it. So do file systems with a journal, such as ext4 and XFS.
    Kept,
}

/// What became of that which was not durable when the power failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Writes and changes of a file's size that are on the disk.
    pub kept_writes: usize,
    /// Those that are not.
    pub dropped_writes: usize,
    /// Writes of which some sectors are.
    pub torn_writes: usize,
    /// Changes of folders that are on the disk.
    pub kept_entries: usize,
    /// Those that are not.
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
    /// Whether anything was at stake.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
