//! Lookup of one key in many trees.

use git2::{Odb, Oid};
use gitcd_core::path;

use super::TreeError;
use super::items::{Kind, entry};
use super::trees::read;

/// Finds the blob of one key in a sequence of trees. Most trees have it where the previous one had it: nothing below the first
/// equal directory is read again.
pub struct Finder<'r> {
    odb: Odb<'r>,
    names: Vec<Vec<u8>>,
    /// The directories on the path to the last answer, from the root on.
    way: Vec<Oid>,
    answer: Option<Oid>,
}

impl<'r> Finder<'r> {
    /// Creates a finder for a key without its prefix.
    pub fn new(odb: Odb<'r>, relative: &[u8]) -> Self {
        let names = path::encode(relative).map(|name| name.to_vec()).collect();
        Self { odb, names, way: Vec::new(), answer: None }
    }

    /// Returns the key's blob in a tree.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn find(&mut self, tree: Oid) -> Result<Option<Oid>, TreeError> {
        let found = self.look(tree);
        if found.is_err() {
            self.way.clear();
        }
        found
    }

    fn look(&mut self, tree: Oid) -> Result<Option<Oid>, TreeError> {
        let mut at = tree;
        for depth in 0..=self.names.len() {
            if self.way.get(depth) == Some(&at) {
                return Ok(self.answer);
            }
            self.way.truncate(depth);
            self.answer = None;
            let name = self.names.get(depth).map_or(path::VALUE, Vec::as_slice);
            let is_last = depth + 1 >= self.names.len();
            let (file, below) = {
                let object = read(&self.odb, at)?;
                let file = if is_last { entry(at, object.data(), name, Kind::File)? } else { None };
                let below = if file.is_none() { entry(at, object.data(), name, Kind::Directory)? } else { None };
                (file, below)
            };
            self.way.push(at);
            self.answer = file;
            match below.filter(|_| depth < self.names.len()) {
                Some(below) => at = below,
                None => break,
            }
        }
        Ok(self.answer)
    }
}

#[cfg(test)]
mod tests {
    use git2::Repository;
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    #[test]
    fn whatever_was_asked_before_the_answer_is_that_of_the_tree() {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let blobs: Vec<_> = (0..3_u8).map(|value| repository.blob(&[value]).unwrap()).collect();
        let tree = |entries: &[(&str, Oid, i32)]| {
            let mut builder = repository.treebuilder(None).unwrap();
            for (name, oid, mode) in entries {
                builder.insert(name, *oid, *mode).unwrap();
            }
            builder.write().unwrap()
        };
        let (file, folder_mode) = (0o100_644, 0o040_000);
        let mut all = vec![(tree(&[]), None)];
        for blob in &blobs {
            for other in [0, 1] {
                let beside = ("z", blobs[other], file);
                let value = tree(&[("%value", *blob, file), ("below", blobs[0], file)]);
                let without = tree(&[("below", *blob, file)]);
                for (entry, answer) in [
                    (("c", *blob, file), Some(*blob)),
                    (("c", value, folder_mode), Some(*blob)),
                    (("c", without, folder_mode), None),
                    (("d", *blob, file), None),
                ] {
                    let inner = tree(&[entry, beside]);
                    let middle = tree(&[("b", inner, folder_mode), beside]);
                    all.push((tree(&[("a", middle, folder_mode), beside]), answer));
                    all.push((tree(&[("a", middle, folder_mode)]), answer));
                    all.push((tree(&[("a", inner, folder_mode)]), None));
                }
            }
        }
        let mut finder = Finder::new(repository.odb().unwrap(), b"a/b/c");
        let mut rng = StdRng::seed_from_u64(1);
        for _ in 0..2000 {
            let (tree, answer) = all[rng.random_range(0..all.len())];
            assert_eq!(finder.find(tree).unwrap(), answer);
        }
        assert!(finder.find(blobs[0]).is_err());
        let (tree, answer) = all[1];
        assert_eq!(finder.find(tree).unwrap(), answer, "an error is not cached");
    }
}
