//! Which packs to repack.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Each remaining pack is at least this many times as large as all smaller ones together.
const FACTOR: u64 = 2;
/// Extensions of files that exclude a pack: it is kept, belongs to a partial clone, or is a cruft pack.
const SET_APART: [&str; 3] = ["keep", "promisor", "mtimes"];

/// A pack in a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pack {
    /// File name without an extension: `pack-<checksum>`.
    pub(super) name: String,
    /// Size in bytes.
    pub(super) bytes: u64,
    /// Modification time: when the pack was written, or Git last reused an object in it.
    pub(super) modified: SystemTime,
}

/// Returns the packs of a folder that may be repacked: with an index, not excluded, and unmodified for `settled`.
pub(super) fn ordinary(folder: &Path, now: SystemTime, settled: Duration) -> Vec<Pack> {
    // Size and modification time if settled, whether it has an index, whether it is excluded.
    type Found = (Option<(u64, SystemTime)>, bool, bool);
    let mut found: HashMap<String, Found> = HashMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some((stem, extension)) = name.to_str().and_then(|name| name.rsplit_once('.')) else { continue };
        if !stem.starts_with("pack-") {
            continue;
        }
        let (old, has_index, is_apart) = found.entry(stem.to_owned()).or_default();
        match extension {
            "idx" => *has_index = true,
            "pack" => {
                let Ok(metadata) = entry.metadata() else { continue };
                let is_settled = |at: &SystemTime| now.duration_since(*at).is_ok_and(|age| age >= settled);
                *old = metadata.modified().ok().filter(is_settled).map(|at| (metadata.len(), at));
            }
            other => *is_apart |= SET_APART.contains(&other),
        }
    }
    let ordinary = found.into_iter().filter_map(|(name, (old, has_index, is_apart))| {
        old.filter(|_| has_index && !is_apart).map(|(bytes, modified)| Pack { name, bytes, modified })
    });
    ordinary.collect()
}

/// Returns the indexes of all other packs.
pub(super) fn others(folder: &Path, packs: &[Pack]) -> Vec<PathBuf> {
    let known: HashSet<&str> = packs.iter().map(|pack| pack.name.as_str()).collect();
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_other = |path: &PathBuf| {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        path.extension().is_some_and(|extension| extension == "idx")
            && stem.starts_with("pack-")
            && !known.contains(stem)
    };
    found.filter(is_other).collect()
}

/// Returns the packs to combine: the small ones, so that each remaining pack is at least twice as large as all smaller ones
/// together. So over time every object is rewritten a logarithmic number of times.
pub(super) fn geometric(mut packs: Vec<Pack>) -> Vec<Pack> {
    packs.sort_by(|one, other| (one.bytes, &one.name).cmp(&(other.bytes, &other.name)));
    // The number of smallest packs to combine so that the others are in proportion …
    let in_proportion = |larger: &Pack, smaller: &Pack| larger.bytes >= FACTOR * smaller.bytes;
    let broken = packs.windows(2).rposition(|pair| !in_proportion(&pair[1], &pair[0]));
    let Some(mut count) = broken.map(|at| at + 2) else { return Vec::new() };
    // … also to the combined pack.
    let mut bytes: u64 = packs[..count].iter().map(|pack| pack.bytes).sum();
    while let Some(next) = packs.get(count).filter(|next| next.bytes < FACTOR * bytes) {
        bytes += next.bytes;
        count += 1;
    }
    packs.truncate(count);
    packs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packs(sizes: &[u64]) -> Vec<Pack> {
        let modified = SystemTime::UNIX_EPOCH;
        sizes
            .iter()
            .enumerate()
            .map(|(at, bytes)| Pack { name: format!("pack-{at}"), bytes: *bytes, modified })
            .collect()
    }

    fn joined(sizes: &[u64]) -> Vec<u64> {
        geometric(packs(sizes)).iter().map(|pack| pack.bytes).collect()
    }

    #[test]
    fn small_packs_are_joined_and_large_ones_are_left_alone() {
        assert_eq!(joined(&[]), [0; 0]);
        assert_eq!(joined(&[5]), [0; 0]);
        assert_eq!(joined(&[1, 2, 4, 8]), [0; 0], "the packs are in proportion");
        assert_eq!(joined(&[1000, 1, 1, 1]), [1, 1, 1]);
        assert_eq!(joined(&[1, 1, 4, 8]), [1, 1], "the combined pack is half of the next one");
        assert_eq!(joined(&[1, 1, 3, 7]), [1, 1, 3, 7], "each combined pack includes the next one");
    }

    proptest! {
        #[test]
        fn what_is_left_is_in_proportion_and_many_are_few_then(sizes in prop::collection::vec(1_u64..1_000_000, 0..80)) {
            let joined = geometric(packs(&sizes));
            prop_assert_ne!(joined.len(), 1);
            let sum: u64 = joined.iter().map(|pack| pack.bytes).sum();
            let mut left: Vec<u64> = packs(&sizes).iter().filter(|pack| !joined.contains(pack)).map(|pack| pack.bytes).collect();
            left.extend((sum > 0).then_some(sum));
            left.sort_unstable();
            prop_assert!(left.windows(2).all(|pair| pair[1] >= FACTOR * pair[0]), "{left:?}");
            prop_assert!(left.len() <= 21);
        }
    }

    #[test]
    fn packs_that_are_new_unfinished_or_set_apart_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| std::fs::write(folder.path().join(name), "12345").unwrap();
        for name in
            ["pack-a.pack", "pack-a.idx", "pack-a.rev", "pack-b.pack", "pack-c.pack", "pack-c.idx", "pack-c.keep"]
        {
            write(name);
        }
        for name in ["pack-d.pack", "pack-d.idx", "pack-d.promisor", "tmp_pack_e", "multi-pack-index", "pack-f.idx"] {
            write(name);
        }
        let (now, settled) = (SystemTime::now(), Duration::from_secs(30));
        assert_eq!(ordinary(folder.path(), now, settled), []);
        let found = ordinary(folder.path(), now + settled + Duration::from_secs(5), settled);
        let modified = folder.path().join("pack-a.pack").metadata().unwrap().modified().unwrap();
        assert_eq!(found, [Pack { name: "pack-a".into(), bytes: 5, modified }]);
        assert_eq!(ordinary(folder.path(), now + Duration::from_secs(5), Duration::ZERO), found);
        assert_eq!(ordinary(&folder.path().join("none"), now, Duration::ZERO), []);
    }
}
