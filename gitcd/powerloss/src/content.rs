//! The content of a file: as programs see it, and as the disk has it.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::StdRng;

use crate::Tally;

const BLOCK: usize = 4096;
/// Size of the writes that a disk makes atomically.
const SECTOR: usize = 512;

/// Bytes with holes: unwritten bytes are zero and take no memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sparse {
    size: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl Sparse {
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Returns at most `length` bytes from `offset`; fewer at the end.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let length = self.size.saturating_sub(offset).min(length as u64) as usize;
        let mut out = vec![0; length];
        for (block, within, part) in parts(offset, length) {
            if let Some(bytes) = self.blocks.get(&block) {
                let width = part.len();
                out[part].copy_from_slice(&bytes[within..within + width]);
            }
        }
        out
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (block, within, part) in parts(offset, bytes.len()) {
            let width = part.len();
            let target = self.blocks.entry(block).or_insert_with(|| vec![0; BLOCK].into_boxed_slice());
            target[within..within + width].copy_from_slice(&bytes[part]);
        }
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    fn resize(&mut self, size: u64) {
        if size < self.size {
            // Clear truncated bytes: they must not reappear when the file grows again.
            let within = (size % BLOCK as u64) as usize;
            let last = size / BLOCK as u64;
            self.blocks.split_off(&if within == 0 { last } else { last + 1 });
            if let Some(block) = self.blocks.get_mut(&last) {
                block[within..].fill(0);
            }
        }
        self.size = size;
    }
}

/// Returns the blocks that a range touches: number, offset in it, and the part of the range.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % BLOCK as u64) as usize;
        let width = (BLOCK - within).min(length - done);
        let part = done..done + width;
        done += width;
        (width > 0).then_some((at / BLOCK as u64, within, part))
    })
}

/// A change of a file that may not be on the disk.
#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Resize(u64),
}

impl Change {
    fn apply(&self, content: &mut Sparse) {
        match self {
            Self::Write { offset, bytes } => content.write(*offset, bytes),
            Self::Resize(size) => content.resize(*size),
        }
    }
}

/// The content of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    now: Sparse,
    durable: Sparse,
    pending: Vec<Change>,
}

impl File {
    pub(crate) fn now(&self) -> &Sparse {
        &self.now
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.change(Change::Write { offset, bytes: bytes.to_vec() });
    }

    pub(crate) fn resize(&mut self, size: u64) {
        self.change(Change::Resize(size));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }

    /// Makes all changes durable.
    pub(crate) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Simulates a power loss: each change that is not durable is kept, dropped, or partly kept. The file may also keep its
    /// length, with zeros where nothing was written.
    pub(crate) fn cut(&mut self, random: &mut StdRng, tally: &mut Tally) {
        let size = self.now.size;
        let was_longer = size > self.durable.size;
        let fate = Fate::any(random);
        for change in std::mem::take(&mut self.pending) {
            match (fate.decide(random), &change) {
                (Decision::Drop, _) | (Decision::Tear, Change::Resize(_)) => tally.dropped_writes += 1,
                (Decision::Keep, _) => {
                    tally.kept_writes += 1;
                    change.apply(&mut self.durable);
                }
                (Decision::Tear, Change::Write { offset, bytes }) => {
                    tally.torn_writes += 1;
                    for (at, sector) in sectors(*offset, bytes) {
                        if random.random_bool(0.5) {
                            self.durable.write(at, sector);
                        }
                    }
                }
            }
        }
        if was_longer && self.durable.size < size && random.random_bool(0.3) {
            self.durable.resize(size);
        }
        self.now = self.durable.clone();
    }
}

/// Splits a range at the sectors of the disk.
fn sectors(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let width = (SECTOR - (at % SECTOR as u64) as usize).min(bytes.len() - done);
        let sector = &bytes[done..done + width];
        done += width;
        (width > 0).then_some((at, sector))
    })
}

/// What happens to changes that are not durable. Of many independent changes, about half would survive each time; that all or
/// none survive must be tested as well.
#[derive(Clone, Copy)]
pub(crate) enum Fate {
    All,
    None,
    Each,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Keep,
    Drop,
    Tear,
}

impl Fate {
    pub(crate) fn any(random: &mut StdRng) -> Self {
        match random.random_range(0..4) {
            0 => Self::All,
            1 => Self::None,
            _ => Self::Each,
        }
    }

    pub(crate) fn decide(self, random: &mut StdRng) -> Decision {
        match self {
            Self::All => Decision::Keep,
            Self::None => Decision::Drop,
            Self::Each => match random.random_range(0..5) {
                0 | 1 => Decision::Keep,
                2 | 3 => Decision::Drop,
                _ => Decision::Tear,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn bytes_come_back_as_they_were_written_and_holes_are_zero() {
        let mut content = Sparse::default();
        let mut plain = Vec::new();
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..500 {
            if random.random_bool(0.2) {
                let size = random.random_range(0..40_000);
                content.resize(size as u64);
                plain.resize(size, 0);
            } else {
                let offset: usize = random.random_range(0..30_000);
                let bytes: Vec<u8> = (0..random.random_range(1..9000)).map(|_| random.random()).collect();
                content.write(offset as u64, &bytes);
                plain.resize(plain.len().max(offset + bytes.len()), 0);
                plain[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
            assert_eq!(content.read(0, usize::MAX >> 1), plain);
            assert_eq!(content.size(), plain.len() as u64);
        }
        assert_eq!(content.read(1 << 40, 10), [0; 0]);
    }

    #[test]
    fn what_was_made_durable_survives_and_the_rest_is_kept_dropped_or_torn() {
        let mut tally = Tally::default();
        let (mut old, mut new, mut torn, mut long) = (0, 0, 0, 0);
        for seed in 0..400 {
            let mut file = File::default();
            file.write(0, &[1; 4000]);
            file.sync();
            file.write(1000, &[2; 2000]);
            file.resize(9000);
            file.cut(&mut StdRng::seed_from_u64(seed), &mut tally);
            let found = file.now().read(0, 10_000);
            assert!(found[..1000].iter().chain(&found[3000..4000]).all(|byte| *byte == 1), "they were made durable");
            assert!(found[4000..].iter().all(|byte| *byte == 0), "the bytes were never written");
            match found[1000..3000].iter().map(|byte| usize::from(*byte == 2)).sum::<usize>() {
                0 => old += 1,
                2000 => new += 1,
                _ => {
                    torn += 1;
                    for sector in found[1024..2560].chunks(SECTOR) {
                        assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is written atomically");
                    }
                }
            }
            long += usize::from(found.len() == 9000);
        }
        for count in [old, new, torn, long] {
            assert!(count > 20, "{old} old, {new} new, {torn} torn, {long} long");
        }
        assert!(tally.kept_writes > 0 && tally.dropped_writes > 0 && tally.torn_writes > 0, "{tally:?}");
    }
}
