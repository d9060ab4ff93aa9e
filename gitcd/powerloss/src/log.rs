//! The entries of folders on the disk, and pending changes of them.

use std::collections::BTreeMap;
use std::ffi::OsString;

use rand::Rng;
use rand::rngs::StdRng;

use crate::content::{Decision, Fate};
use crate::{Order, Tally};

/// A file or folder.
pub(crate) type Inode = u64;
/// A name in a folder.
pub(crate) type Place = (Inode, OsString);

/// The atomic changes of folders by one call: each entry and its new target.
#[derive(Clone, Debug)]
struct Operation {
    number: u64,
    entries: Vec<(Place, Option<Inode>)>,
}

impl Operation {
    fn is_in(&self, inode: Inode) -> bool {
        self.entries.iter().any(|((folder, _), _)| *folder == inode)
    }

    fn touches(&self, inode: Inode) -> bool {
        self.entries.iter().any(|((folder, _), target)| *folder == inode || *target == Some(inode))
    }
}

/// The entries on the disk, and the changes since.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    number: u64,
    /// Entries with the number of the operation that set them: an older one that reaches the disk later has no effect.
    durable: BTreeMap<Place, (u64, Option<Inode>)>,
    pending: Vec<Operation>,
}

impl Log {
    pub(crate) fn add(&mut self, entries: Vec<(Place, Option<Inode>)>) {
        self.number += 1;
        self.pending.push(Operation { number: self.number, entries });
    }

    /// Makes a file or a folder durable.
    pub(crate) fn sync(&mut self, inode: Inode, is_folder: bool, order: Order) {
        match order {
            Order::None => {
                // An entry belongs to its folder, also if it is a folder itself.
                if is_folder {
                    let (done, rest) = std::mem::take(&mut self.pending).into_iter().partition(|it| it.is_in(inode));
                    self.pending = rest;
                    self.apply(done);
                }
            }
            Order::Kept => {
                let count = self.pending.iter().rposition(|it| it.touches(inode)).map_or(0, |at| at + 1);
                let done = self.pending.drain(..count).collect();
                self.apply(done);
            }
        }
    }

    /// Makes everything durable.
    pub(crate) fn settle(&mut self) {
        let done = std::mem::take(&mut self.pending);
        self.apply(done);
    }

    /// Simulates a power loss.
    pub(crate) fn cut(&mut self, order: Order, random: &mut StdRng, tally: &mut Tally) {
        let pending = std::mem::take(&mut self.pending);
        let all = pending.len();
        let kept: Vec<_> = match order {
            Order::None => {
                let fate = Fate::any(random);
                pending.into_iter().filter(|_| fate.decide(random) == Decision::Keep).collect()
            }
            Order::Kept => {
                let count = random.random_range(0..=all);
                pending.into_iter().take(count).collect()
            }
        };
        tally.kept_entries += kept.len();
        tally.dropped_entries += all - kept.len();
        self.apply(kept);
    }

    fn apply(&mut self, operations: Vec<Operation>) {
        for operation in operations {
            for (place, target) in operation.entries {
                let known = self.durable.entry(place).or_insert((0, None));
                if known.0 < operation.number {
                    *known = (operation.number, target);
                }
            }
        }
    }

    /// Returns the entries of a folder on the disk.
    pub(crate) fn entries(&self, folder: Inode) -> impl Iterator<Item = (&OsString, Inode)> {
        let behind = self.durable.range((folder, OsString::new())..);
        let within = behind.take_while(move |((at, _), _)| *at == folder);
        within.filter_map(|((_, name), (_, target))| target.map(|target| (name, target)))
    }

    /// Forgets unreachable folders.
    pub(crate) fn retain(&mut self, is_reachable: impl Fn(Inode) -> bool) {
        self.durable.retain(|(folder, _), (_, target)| target.is_some() && is_reachable(*folder));
    }
}
