//! A tree of values in memory, written as Git trees after every few changes.
//!
//! Paths are entry names joined by slashes. If a key is also a directory of other keys, its value is the entry [`VALUE`] of that
//! directory; this is transparent to callers.

use std::collections::HashMap;

use git2::Oid;
use gitcd_core::path::VALUE;

use super::entries::{Entries, Entry};
use super::pack;

/// A tree of files.
#[derive(Debug, Default)]
pub(super) struct Tree {
    root: Directory,
    files: usize,
    overhead: usize,
    scratch: Vec<u8>,
}

/// A directory and everything below it.
#[derive(Debug, Default)]
pub(super) struct Directory {
    entries: Entries,
    /// Stale children may be missing in `entries`.
    children: HashMap<Box<[u8]>, Box<Directory>>,
    /// Names of the children that changed since they were last written.
    stale: Vec<Box<[u8]>>,
    is_stale: bool,
}

/// The result of writing a directory.
enum Written {
    Empty,
    /// Only its own value is left: it becomes a file again.
    OnlyValue(Oid),
    Tree(Oid),
}

impl Directory {
    /// Creates a directory that is in the repository; `children` must have every subdirectory.
    pub(super) fn new(entries: Entries, children: HashMap<Box<[u8]>, Box<Directory>>) -> Self {
        Directory { entries, children, stale: Vec::new(), is_stale: false }
    }

    // Keys may be a thousand levels deep, so avoid recursion where possible.

    fn put(&mut self, path: &[u8], oid: Oid) -> bool {
        let mut directory = self;
        let (mut name, mut rest) = split(path);
        while rest.is_some() || directory.children.contains_key(name) {
            directory = directory.stale_child(name);
            (name, rest) = split(rest.unwrap_or(VALUE));
        }
        let before = directory.entries.len();
        directory.entries.set(Entry::File, name, oid);
        directory.entries.len() > before
    }

    /// Returns the child with this name, created if missing, and marks it as stale.
    fn stale_child(&mut self, name: &[u8]) -> &mut Directory {
        if !self.children.contains_key(name) {
            let mut child = Box::<Directory>::default();
            if let Some(value) = self.entries.remove(Entry::File, name) {
                child.entries.set(Entry::File, VALUE, value);
            }
            self.children.insert(name.into(), child);
        }
        let child = self.children.get_mut(name).expect("the child was created above");
        if !std::mem::replace(&mut child.is_stale, true) {
            self.stale.push(name.into());
        }
        child
    }

    fn remove(&mut self, path: &[u8]) -> bool {
        // Mark or create nothing on the path to a missing file.
        if self.find(path).is_none() {
            return false;
        }
        let mut directory = self;
        let (mut name, mut rest) = split(path);
        while rest.is_some() || directory.children.contains_key(name) {
            directory = directory.stale_child(name);
            (name, rest) = split(rest.unwrap_or(VALUE));
        }
        directory.entries.remove(Entry::File, name).is_some()
    }

    fn find(&self, path: &[u8]) -> Option<Oid> {
        let mut directory = self;
        let (mut name, mut rest) = split(path);
        loop {
            match (directory.children.get(name), rest) {
                (Some(child), _) => {
                    directory = child;
                    (name, rest) = split(rest.unwrap_or(VALUE));
                }
                (None, None) => return directory.entries.find(Entry::File, name),
                (None, Some(_)) => return None,
            }
        }
    }

    fn each(&self, path: &mut Vec<u8>, found: &mut impl FnMut(&[u8], Oid)) {
        let len = path.len();
        for (kind, name, oid) in self.entries.iter() {
            path.extend_from_slice(name);
            match kind {
                Entry::File => found(path, oid),
                Entry::Directory => {
                    path.push(b'/');
                    if let Some(child) = self.children.get(name) {
                        child.each(path, found);
                    }
                }
            }
            path.truncate(len);
        }
    }

    /// Writes what is stale, deepest first. Adds the bytes written whole to `overhead`.
    fn write(
        &mut self,
        pack: &mut pack::Writer,
        scratch: &mut Vec<u8>,
        overhead: &mut usize,
        is_root: bool,
    ) -> Written {
        for name in std::mem::take(&mut self.stale) {
            let child = self.children.get_mut(&name).expect("a stale name is that of a child until it is written");
            child.is_stale = false;
            match child.write(pack, scratch, overhead, false) {
                Written::Tree(oid) => self.entries.set(Entry::Directory, &name, oid),
                gone => {
                    self.children.remove(&name);
                    self.entries.remove(Entry::Directory, &name);
                    if let Written::OnlyValue(oid) = gone {
                        self.entries.set(Entry::File, &name, oid);
                    }
                }
            }
        }
        if !is_root && self.entries.is_empty() {
            return Written::Empty;
        }
        if !is_root
            && self.entries.len() == 1
            && let Some(oid) = self.entries.find(Entry::File, VALUE)
        {
            return Written::OnlyValue(oid);
        }
        let (oid, whole) = self.entries.write(pack, scratch);
        *overhead += whole;
        Written::Tree(oid)
    }
}

impl Tree {
    /// Creates a tree that is in the repository.
    pub(super) fn new(root: Directory) -> Self {
        let mut tree = Tree { root, ..Tree::default() };
        let mut files = 0;
        tree.each(|_, _| files += 1);
        tree.files = files;
        tree
    }

    /// Returns the number of files.
    pub(super) fn len(&self) -> usize {
        self.files
    }

    /// Returns whether there are no files.
    pub(super) fn is_empty(&self) -> bool {
        self.files == 0
    }

    /// Sets the blob of a key's file.
    pub(super) fn put(&mut self, path: &[u8], oid: Oid) {
        self.files += usize::from(self.root.put(path, oid));
    }

    /// Removes a key's file; returns whether there was one.
    pub(super) fn remove(&mut self, path: &[u8]) -> bool {
        let removed = self.root.remove(path);
        self.files -= usize::from(removed);
        removed
    }

    /// Returns the blob of a key's file.
    pub(super) fn find(&self, path: &[u8]) -> Option<Oid> {
        self.root.find(path)
    }

    /// Returns whether other keys exist below this path, so that the value of its own key is the entry [`VALUE`] there.
    pub(super) fn is_directory(&self, path: &[u8]) -> bool {
        let mut directory = &self.root;
        path.split(|b| *b == b'/').all(|name| directory.children.get(name).map(|child| directory = child).is_some())
    }

    /// Calls `found` for every file as of the last [`Self::write`], in Git's order, with the path in Git.
    pub(super) fn each(&self, mut found: impl FnMut(&[u8], Oid)) {
        self.root.each(&mut Vec::new(), &mut found);
    }

    /// Adds every changed directory to the pack; returns the ID of the root.
    pub(super) fn write(&mut self, pack: &mut pack::Writer) -> Oid {
        match self.root.write(pack, &mut self.scratch, &mut self.overhead, true) {
            Written::Tree(oid) => oid,
            Written::Empty | Written::OnlyValue(_) => unreachable!("the root is always written"),
        }
    }

    /// Returns the bytes spent on whole directories since the last call.
    pub(super) fn take_overhead(&mut self) -> usize {
        std::mem::take(&mut self.overhead)
    }
}

fn split(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    match path.iter().position(|b| *b == b'/') {
        Some(slash) => (&path[..slash], Some(&path[slash + 1..])),
        None => (path, None),
    }
}
