//! Keys that differ between two trees of values.
//!
//! Directories with equal IDs are skipped, so the cost grows with the difference: each directory on the path to a change is read
//! once.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use git2::{ObjectType, Odb, Oid, Repository};

pub use self::finder::Finder;
use self::items::{Item, Kind, apart, compare, differing, parse};
use self::trees::read;
pub use self::trees::{EntryKind, Trees};
use gitcd_core::path;

mod finder;
mod items;
mod trees;

/// The differences between two trees.
#[derive(Debug, Default)]
pub struct Changes {
    /// Changed keys, without the key prefix.
    pub keys: BTreeMap<Vec<u8>, Change>,
    /// New or changed files of the second tree that are unmappable: their path, and why.
    pub strange: Vec<(Vec<u8>, String)>,
}

/// The blobs of a key in both trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The blob in the first tree.
    pub from: Option<Oid>,
    /// The blob in the second tree.
    pub to: Option<Oid>,
}

/// A tree that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("tree {oid}: {problem}")]
pub struct TreeError {
    /// The tree.
    pub oid: Oid,
    /// What is wrong.
    pub problem: String,
}

/// Returns the keys whose values differ between two trees; `None` is an empty tree.
///
/// # Errors
/// [`TreeError`] if a tree is missing or damaged.
pub fn between(repository: &Repository, from: Option<Oid>, to: Option<Oid>) -> Result<Changes, TreeError> {
    between_while(repository, from, to, || Ok(()))
}

/// Does the same, and ends with an error of `proceed`, which is called for each directory.
///
/// # Errors
/// As [`between`], and those of `proceed`.
pub fn between_while<E: From<TreeError>>(
    repository: &Repository,
    from: Option<Oid>,
    to: Option<Oid>,
    proceed: impl FnMut() -> Result<(), E>,
) -> Result<Changes, E> {
    let odb = repository.odb().map_err(|error| failed(Oid::ZERO_SHA1, &error))?;
    walk(&mut Trees::new(odb), from, to, proceed)
}

/// Does the same with a cache of trees, for many comparisons.
pub(crate) fn among(trees: &mut Trees<'_>, from: Option<Oid>, to: Option<Oid>) -> Result<Changes, TreeError> {
    walk(trees, from, to, || Ok(()))
}

fn walk<E: From<TreeError>>(
    trees: &mut Trees<'_>,
    from: Option<Oid>,
    to: Option<Oid>,
    proceed: impl FnMut() -> Result<(), E>,
) -> Result<Changes, E> {
    let mut walk = Walk { trees, changes: Changes::default() };
    walk.run(from, to, proceed)?;
    let mut changes = walk.changes;
    // A value moves into a directory once other keys exist below it: that is not a change.
    changes.keys.retain(|_, change| change.from != change.to);
    Ok(changes)
}

/// Returns the blob of a key in a tree.
///
/// # Errors
/// [`TreeError`].
pub fn find(repository: &Repository, tree: Oid, relative: &[u8]) -> Result<Option<Oid>, TreeError> {
    let odb = repository.odb().map_err(|error| failed(tree, &error))?;
    Finder::new(odb, relative).find(tree)
}

/// Returns whether a tree has something unmappable at a path.
pub fn is_strange(tree: &git2::Tree<'_>, path: &str) -> bool {
    let Ok(entry) = tree.get_path(std::path::Path::new(path)) else { return false };
    match entry.kind() {
        Some(ObjectType::Tree) => path.split('/').count() > path::MAX_DEPTH,
        Some(ObjectType::Blob) if entry.filemode() != 0o120_000 => {
            let key = path::decode(path.as_bytes().split(|byte| *byte == b'/'));
            !key.is_ok_and(|key| path::fits(&key))
        }
        _ => true,
    }
}

/// An entry of a tree that another tree lacks or has otherwise.
#[derive(Debug)]
pub struct Entry {
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Its name in the tree.
    pub name: Vec<u8>,
    /// Its blob or tree.
    pub oid: Oid,
    /// The directories with this name in the other trees.
    pub before: Vec<Oid>,
}

/// Returns the entries of a tree, except submodules, that none of the trees `before` has.
pub fn added(oid: Oid, tree: &[u8], before: &[(Oid, &[u8])]) -> Result<Vec<Entry>, TreeError> {
    let tree = parse(oid, tree)?;
    let mut entries: Option<Vec<Entry>> = None;
    for (oid, data) in before {
        let (removed, added) = differing(&parse(*oid, data)?, &tree);
        let directories = removed.into_iter().filter(|(kind, ..)| *kind == Kind::Directory);
        let directories: BTreeMap<Vec<u8>, Oid> = directories.map(|(_, name, oid)| (name, oid)).collect();
        let mut known = entries.take().map(|entries| entries.into_iter().map(|entry| (entry.name, entry.before)));
        let mut known: Option<BTreeMap<_, _>> = known.as_mut().map(Iterator::collect);
        let here = added.into_iter().filter(|(kind, ..)| *kind != Kind::Submodule).filter_map(|(kind, name, oid)| {
            // An entry that another tree has is not new.
            let mut before = known.as_mut().map_or_else(|| Some(Vec::new()), |known| known.remove(&name))?;
            before.extend(directories.get(&name));
            Some(Entry { is_directory: kind == Kind::Directory, name, oid, before })
        });
        entries = Some(here.collect());
    }
    Ok(entries.unwrap_or_else(|| {
        let all = tree.iter().filter(|item| item.kind != Kind::Submodule);
        let entry = |item: &Item<'_>| Entry {
            is_directory: item.kind == Kind::Directory,
            name: item.name.to_vec(),
            oid: item.oid,
            before: Vec::new(),
        };
        all.map(entry).collect()
    }))
}

/// Returns whether a tree has only files and directories, in Git's order, with names that are safe on all systems.
pub fn is_plain(tree: &[u8]) -> bool {
    let Ok(items) = parse(Oid::ZERO_SHA1, tree) else { return false };
    let is_plain = |item: &Item<'_>| {
        let name = item.name;
        matches!(item.kind, Kind::File | Kind::Directory)
            && !item.is_old
            && !name.is_empty()
            && name.len() <= 1024
            && name.iter().all(|c| c.is_ascii() && !matches!(c, b'/' | b'\\' | b':' | b'~'))
            && !matches!(name, b"." | b"..")
            // Names that some systems take for `.git`.
            && !name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b".git") || start.eq_ignore_ascii_case(b"git~"))
            && !item.oid.is_zero()
    };
    // A file and a directory with the same name need not be adjacent.
    let mut names: Vec<_> = items.iter().map(|item| item.name).collect();
    names.sort_unstable();
    items.iter().all(is_plain)
        && items.is_sorted_by(|one, other| compare(one, other) == Ordering::Less)
        && names.windows(2).all(|pair| pair[0] != pair[1])
}

/// Returns the file or directory with this name, and whether it is a directory.
pub fn any_entry(odb: &Odb<'_>, tree: Oid, name: &[u8]) -> Result<Option<(bool, Oid)>, TreeError> {
    let object = read(odb, tree)?;
    let items = parse(tree, object.data())?;
    let found = items.iter().find(|item| matches!(item.kind, Kind::File | Kind::Directory) && item.name == name);
    Ok(found.map(|item| (item.kind == Kind::Directory, item.oid)))
}

/// Returns all files and directories, and whether each is a directory.
pub(super) fn entries(odb: &Odb<'_>, tree: Oid) -> Result<Vec<(bool, Oid)>, TreeError> {
    let object = read(odb, tree)?;
    let items = parse(tree, object.data())?;
    let plain = items.iter().filter(|item| matches!(item.kind, Kind::File | Kind::Directory));
    Ok(plain.map(|item| (item.kind == Kind::Directory, item.oid)).collect())
}

fn failed(oid: Oid, error: &git2::Error) -> TreeError {
    TreeError { oid, problem: error.message().to_owned() }
}

struct Walk<'w, 'r> {
    trees: &'w mut Trees<'r>,
    changes: Changes,
}

/// Two directories at the same path.
struct TreePair {
    path: Vec<u8>,
    depth: usize,
    from: Option<Oid>,
    to: Option<Oid>,
}

impl Walk<'_, '_> {
    fn run<E: From<TreeError>>(
        &mut self,
        from: Option<Oid>,
        to: Option<Oid>,
        mut proceed: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        // Use a heap-allocated stack: directories may be nested deeper than a thread's stack allows.
        let mut stack = vec![TreePair { path: Vec::new(), depth: 0, from, to }];
        while let Some(pair) = stack.pop() {
            if pair.from == pair.to {
                continue;
            }
            proceed()?;
            let first = stack.len();
            self.trees(&pair, &mut stack)?;
            stack[first..].reverse();
        }
        Ok(())
    }

    fn trees(&mut self, pair: &TreePair, stack: &mut Vec<TreePair>) -> Result<(), TreeError> {
        let &TreePair { ref path, depth, from, to } = pair;
        let mut load = |tree: Option<Oid>| tree.map(|oid| self.trees.read(oid)).transpose();
        let (one, other) = (load(from)?, load(to)?);
        let (left, right) = apart(one.as_deref().unwrap_or_default(), other.as_deref().unwrap_or_default());
        let of = |tree: Option<Oid>| tree.unwrap_or(Oid::ZERO_SHA1);
        let (removed, added) = differing(&parse(of(from), left)?, &parse(of(to), right)?);
        let mut below: BTreeMap<Vec<u8>, (Option<Oid>, Option<Oid>)> = BTreeMap::new();
        for (kind, name, oid) in removed {
            match kind {
                Kind::Directory => below.entry(name).or_default().0 = Some(oid),
                Kind::File => self.file(path, &name, Some(oid), None),
                Kind::Submodule | Kind::Other => {}
            }
        }
        for (kind, name, oid) in added {
            match kind {
                Kind::Directory => below.entry(name).or_default().1 = Some(oid),
                Kind::File => self.file(path, &name, None, Some(oid)),
                Kind::Submodule | Kind::Other => {
                    self.changes.strange.push((joined(path, &name), "it is neither a file nor a directory".into()));
                }
            }
        }
        for (name, (from, to)) in below {
            let path = joined(path, &name);
            // The names of a key, and one more for a value beside other keys.
            if depth < path::MAX_DEPTH {
                stack.push(TreePair { path, depth: depth + 1, from, to });
            } else if to.is_some() {
                self.changes.strange.push((path, too_deep()));
            }
        }
        Ok(())
    }

    fn file(&mut self, folder: &[u8], name: &[u8], from: Option<Oid>, to: Option<Oid>) {
        let path = joined(folder, name);
        match path::decode(path.split(|byte| *byte == b'/')) {
            Ok(key) if to.is_some() && !path::fits(&key) => self.changes.strange.push((path, too_deep())),
            Ok(key) => {
                let change = self.changes.keys.entry(key).or_default();
                change.from = change.from.or(from);
                change.to = change.to.or(to);
            }
            Err(error) if to.is_some() => self.changes.strange.push((path, error.to_string())),
            Err(_) => {}
        }
    }
}

fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

fn too_deep() -> String {
    format!("it lies below more than {} directories", path::MAX_DEPTH - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Writes a tree as gitcd does: a value beside other keys is in their directory.
    fn tree(repository: &Repository, keys: &BTreeMap<String, u8>) -> Oid {
        let mut files: BTreeMap<Vec<u8>, Oid> = BTreeMap::new();
        for (key, value) in keys {
            let blob = repository.blob(&[*value]).unwrap();
            let mut names: Vec<Vec<u8>> = path::encode(key.as_bytes()).map(|name| name.to_vec()).collect();
            if keys.keys().any(|other| other.starts_with(&format!("{key}/"))) {
                names.push(path::VALUE.to_vec());
            }
            files.insert(names.join(&b'/'), blob);
        }
        write(repository, &files)
    }

    fn write(repository: &Repository, files: &BTreeMap<Vec<u8>, Oid>) -> Oid {
        let mut builder = repository.treebuilder(None).unwrap();
        let mut below: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Oid>> = BTreeMap::new();
        for (path, oid) in files {
            match path.iter().position(|byte| *byte == b'/') {
                Some(slash) => {
                    below.entry(path[..slash].to_vec()).or_default().insert(path[slash + 1..].to_vec(), *oid);
                }
                None => drop(builder.insert(&path[..], *oid, 0o100_644).unwrap()),
            }
        }
        for (name, files) in below {
            let oid = write(repository, &files);
            builder.insert(&name[..], oid, 0o040_000).unwrap();
        }
        builder.write().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn exactly_the_keys_that_differ_are_found(
            one in proptest::collection::btree_map("[ab](/[a-c]){0,2}", 0..3_u8, 0..8),
            other in proptest::collection::btree_map("[ab](/[a-c]){0,2}", 0..3_u8, 0..8),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let repository = Repository::init_bare(folder.path()).unwrap();
            let (from, to) = (tree(&repository, &one), tree(&repository, &other));
            let changes = between(&repository, Some(from), Some(to)).unwrap();
            prop_assert!(changes.strange.is_empty());
            let blob = |value: Option<&u8>| value.map(|value| repository.blob(&[*value]).unwrap());
            let mut expected = BTreeMap::new();
            for key in one.keys().chain(other.keys()) {
                if one.get(key) != other.get(key) {
                    expected.insert(key.clone().into_bytes(), Change { from: blob(one.get(key)), to: blob(other.get(key)) });
                }
                prop_assert_eq!(find(&repository, from, key.as_bytes()).unwrap(), blob(one.get(key)));
            }
            prop_assert_eq!(changes.keys, expected);
        }
    }

    /// Nests this many directories with one entry each.
    fn nested(repository: &Repository, names: usize) -> Oid {
        let mut at = repository.blob(b"x").unwrap();
        for depth in 0..names {
            let mut builder = repository.treebuilder(None).unwrap();
            builder.insert("a", at, if depth == 0 { 0o100_644 } else { 0o040_000 }).unwrap();
            at = builder.write().unwrap();
        }
        at
    }

    #[test]
    fn what_lies_too_deep_for_a_key_is_strange_however_deep_it_lies() {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let deepest = nested(&repository, path::MAX_DEPTH);
        let changes = between(&repository, None, Some(deepest)).unwrap();
        let key = ["a"; path::MAX_DEPTH].join("/").into_bytes();
        assert!(changes.keys.contains_key(&key) && path::fits(&key) && changes.strange.is_empty());
        for names in [path::MAX_DEPTH + 1, path::MAX_DEPTH + 2, 3000] {
            let deep = nested(&repository, names);
            let changes = between(&repository, Some(deepest), Some(deep)).unwrap();
            let [(path, reason)] = &changes.strange[..] else { panic!("{names}: {:?}", changes.strange) };
            assert!(path.starts_with(b"a/a/") && reason.contains("1023 directories"), "{reason}");
            let back = between(&repository, Some(deep), Some(deepest)).unwrap();
            assert!(back.strange.is_empty() && back.keys[&key].to.is_some(), "{names}");
        }
    }

    #[test]
    fn only_trees_without_anything_special_are_plain() {
        let tree = |entries: &[(&str, &str)]| {
            let entry =
                |(mode, name): &(&str, &str)| [mode.as_bytes(), b" ", name.as_bytes(), b"\0", &[1; 20]].concat();
            entries.iter().flat_map(entry).collect::<Vec<u8>>()
        };
        let (file, folder) = ("100644", "40000");
        assert!(is_plain(&tree(&[(file, "a"), (folder, "a-b"), (folder, "b"), ("100755", "c")])));
        assert!(is_plain(&tree(&[(file, "a-b"), (folder, "a")])) && !is_plain(&tree(&[(folder, "a"), (file, "a-b")])));
        for name in ["", ".", "..", ".git", ".GIT", ".gitmodules", "GIT~1", "gitmod~1", "a/b", "a\\b", "a:b", "\u{e4}"]
        {
            assert!(!is_plain(&tree(&[(file, name)])), "{name:?}");
        }
        for mode in ["120000", "160000", "100664", "040000", "100600"] {
            assert!(!is_plain(&tree(&[(mode, "a")])), "{mode}");
        }
        // An ID may end with the first digit of an old mode.
        let ids = [b"100644 a\0", &[b'0'; 20][..], b"40000 b\0", &[b'0'; 20], b"100644 c\0", &[b'1'; 20]].concat();
        assert!(is_plain(&ids));
        assert!(!is_plain(&tree(&[(file, "b"), (file, "a")])));
        assert!(!is_plain(&tree(&[(file, "a"), (file, "a")])));
        assert!(!is_plain(&tree(&[(file, "a"), (file, "a.b"), (folder, "a")])));
        assert!(!is_plain(&tree(&[(file, "a")])[..20]));
    }
}
