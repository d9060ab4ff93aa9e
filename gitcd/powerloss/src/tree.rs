//! Folders, files and links, without the kernel.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rand::SeedableRng;
use rand::rngs::StdRng;
use rustix::io::Errno;

use crate::content::File;
use crate::log::{Inode, Log};
use crate::{Order, Tally};

/// The root folder.
pub(crate) const ROOT: Inode = 1;

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    File(File),
    Folder(BTreeMap<OsString, Inode>),
    Link(PathBuf),
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) mode: u16,
    pub(crate) owner: (u32, u32),
    pub(crate) modified: SystemTime,
    pub(crate) links: u32,
    /// Its last name, to identify it in messages.
    place: (Inode, OsString),
}

/// A file system, as programs see it and as the disk has it.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    order: Order,
    nodes: BTreeMap<Inode, Node>,
    next: Inode,
    log: Log,
}

type Answer<T> = Result<T, Errno>;

impl Tree {
    pub(crate) fn new(order: Order) -> Self {
        let root = Node {
            kind: Kind::Folder(BTreeMap::new()),
            mode: 0o755,
            owner: (0, 0),
            modified: SystemTime::now(),
            links: 2,
            place: (ROOT, OsString::new()),
        };
        Self { order, nodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1, log: Log::default() }
    }

    pub(crate) fn node(&self, inode: Inode) -> Answer<&Node> {
        self.nodes.get(&inode).ok_or(Errno::STALE)
    }

    fn node_mut(&mut self, inode: Inode) -> Answer<&mut Node> {
        self.nodes.get_mut(&inode).ok_or(Errno::STALE)
    }

    pub(crate) fn folder(&self, inode: Inode) -> Answer<&BTreeMap<OsString, Inode>> {
        match &self.node(inode)?.kind {
            Kind::Folder(entries) => Ok(entries),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn entries(&mut self, inode: Inode) -> Answer<&mut BTreeMap<OsString, Inode>> {
        let node = self.node_mut(inode)?;
        node.modified = SystemTime::now();
        match &mut node.kind {
            Kind::Folder(entries) => Ok(entries),
            _ => Err(Errno::NOTDIR),
        }
    }

    pub(crate) fn file(&self, inode: Inode) -> Answer<&File> {
        match &self.node(inode)?.kind {
            Kind::File(file) => Ok(file),
            _ => Err(Errno::ISDIR),
        }
    }

    fn file_mut(&mut self, inode: Inode) -> Answer<&mut File> {
        let node = self.node_mut(inode)?;
        node.modified = SystemTime::now();
        match &mut node.kind {
            Kind::File(file) => Ok(file),
            _ => Err(Errno::ISDIR),
        }
    }

    pub(crate) fn lookup(&self, folder: Inode, name: &OsStr) -> Answer<Inode> {
        self.folder(folder)?.get(name).copied().ok_or(Errno::NOENT)
    }

    /// Returns the path of a node, for messages.
    pub(crate) fn path(&self, inode: Inode) -> PathBuf {
        let mut names = Vec::new();
        let mut at = inode;
        while at != ROOT
            && let Some(node) = self.nodes.get(&at)
        {
            names.push(&node.place.1);
            at = node.place.0;
        }
        names.into_iter().rev().collect()
    }

    pub(crate) fn make(
        &mut self,
        folder: Inode,
        name: &OsStr,
        kind: Kind,
        mode: u16,
        owner: (u32, u32),
    ) -> Answer<Inode> {
        if self.lookup(folder, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let (inode, place) = (self.next, (folder, name.to_owned()));
        let links = if matches!(kind, Kind::Folder(_)) { 2 } else { 1 };
        self.entries(folder)?.insert(name.to_owned(), inode);
        self.next += 1;
        self.nodes.insert(inode, Node { kind, mode, owner, modified: SystemTime::now(), links, place: place.clone() });
        self.log.add(vec![(place, Some(inode))]);
        Ok(inode)
    }

    pub(crate) fn link(&mut self, inode: Inode, folder: Inode, name: &OsStr) -> Answer<()> {
        if self.lookup(folder, name).is_ok() {
            return Err(Errno::EXIST);
        }
        if self.folder(inode).is_ok() {
            return Err(Errno::PERM);
        }
        self.entries(folder)?.insert(name.to_owned(), inode);
        self.node_mut(inode)?.links += 1;
        self.log.add(vec![((folder, name.to_owned()), Some(inode))]);
        Ok(())
    }

    pub(crate) fn unlink(&mut self, folder: Inode, name: &OsStr) -> Answer<()> {
        let inode = self.lookup(folder, name)?;
        if self.folder(inode).is_ok() {
            return Err(Errno::ISDIR);
        }
        self.entries(folder)?.remove(name);
        self.node_mut(inode)?.links -= 1;
        self.log.add(vec![((folder, name.to_owned()), None)]);
        Ok(())
    }

    pub(crate) fn remove_folder(&mut self, folder: Inode, name: &OsStr) -> Answer<()> {
        let inode = self.lookup(folder, name)?;
        if !self.folder(inode)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.entries(folder)?.remove(name);
        self.node_mut(inode)?.links = 0;
        self.log.add(vec![((folder, name.to_owned()), None)]);
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: (Inode, &OsStr), to: (Inode, &OsStr), may_replace: bool) -> Answer<()> {
        let inode = self.lookup(from.0, from.1)?;
        if let Ok(replaced) = self.lookup(to.0, to.1) {
            if !may_replace {
                return Err(Errno::EXIST);
            }
            if replaced == inode {
                return Ok(());
            }
            match (self.folder(inode).is_ok(), self.folder(replaced)) {
                (true, Ok(entries)) if !entries.is_empty() => return Err(Errno::NOTEMPTY),
                (true, Err(_)) => return Err(Errno::NOTDIR),
                (false, Ok(_)) => return Err(Errno::ISDIR),
                _ => {}
            }
            let node = self.node_mut(replaced)?;
            node.links = node.links.saturating_sub(1);
        }
        self.entries(from.0)?.remove(from.1);
        self.entries(to.0)?.insert(to.1.to_owned(), inode);
        let (from, to) = ((from.0, from.1.to_owned()), (to.0, to.1.to_owned()));
        self.node_mut(inode)?.place = to.clone();
        self.log.add(vec![(from, None), (to, Some(inode))]);
        Ok(())
    }

    pub(crate) fn write(&mut self, inode: Inode, offset: u64, bytes: &[u8]) -> Answer<()> {
        self.file_mut(inode)?.write(offset, bytes);
        Ok(())
    }

    pub(crate) fn resize(&mut self, inode: Inode, size: u64) -> Answer<()> {
        self.file_mut(inode)?.resize(size);
        Ok(())
    }

    /// Sets permissions, owners and times. These are durable immediately, since no test depends on them.
    pub(crate) fn set(
        &mut self,
        inode: Inode,
        mode: Option<u16>,
        owner: (Option<u32>, Option<u32>),
        modified: Option<SystemTime>,
    ) -> Answer<()> {
        let node = self.node_mut(inode)?;
        node.mode = mode.unwrap_or(node.mode);
        node.owner = (owner.0.unwrap_or(node.owner.0), owner.1.unwrap_or(node.owner.1));
        node.modified = modified.unwrap_or(node.modified);
        Ok(())
    }

    /// Does an `fsync` or `fdatasync`.
    pub(crate) fn sync(&mut self, inode: Inode) -> Answer<()> {
        let node = self.nodes.get_mut(&inode).ok_or(Errno::STALE)?;
        let is_folder = match &mut node.kind {
            Kind::File(file) => {
                file.sync();
                false
            }
            Kind::Folder(_) => true,
            Kind::Link(_) => false,
        };
        self.log.sync(inode, is_folder, self.order);
        Ok(())
    }

    /// Does a `sync`.
    pub(crate) fn settle(&mut self) {
        for node in self.nodes.values_mut() {
            if let Kind::File(file) = &mut node.kind {
                file.sync();
            }
        }
        self.log.settle();
    }

    /// Simulates a power loss of duration `off`.
    pub(crate) fn cut(&mut self, seed: u64, off: Duration) -> Tally {
        let (mut random, mut tally) = (StdRng::seed_from_u64(seed), Tally::default());
        self.log.cut(self.order, &mut random, &mut tally);
        let (mut found, mut open) = (BTreeMap::<Inode, u32>::new(), vec![ROOT]);
        while let Some(folder) = open.pop() {
            let entries: BTreeMap<_, _> = self.log.entries(folder).map(|(name, inode)| (name.clone(), inode)).collect();
            for (name, inode) in &entries {
                *found.entry(*inode).or_default() += 1;
                let Some(node) = self.nodes.get_mut(inode) else { continue };
                node.place = (folder, name.clone());
                if matches!(node.kind, Kind::Folder(_)) {
                    open.push(*inode);
                }
            }
            if let Some(node) = self.nodes.get_mut(&folder) {
                node.kind = Kind::Folder(entries);
            }
        }
        self.nodes.retain(|inode, _| *inode == ROOT || found.contains_key(inode));
        self.log.retain(|inode| inode == ROOT || found.contains_key(&inode));
        for (inode, node) in &mut self.nodes {
            if let Kind::File(file) = &mut node.kind {
                file.cut(&mut random, &mut tally);
            }
            node.links = match node.kind {
                Kind::Folder(_) => 2,
                Kind::File(_) | Kind::Link(_) => found.get(inode).copied().unwrap_or_default(),
            };
            node.modified -= off;
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn file() -> Kind {
        Kind::File(File::default())
    }

    fn folder() -> Kind {
        Kind::Folder(BTreeMap::new())
    }

    fn name(name: &str) -> &OsStr {
        OsStr::new(name)
    }

    /// Formats all names with their contents.
    fn show(tree: &Tree, at: Inode) -> String {
        let entries = tree.folder(at).unwrap().iter().map(|(name, inode)| {
            let name = name.to_string_lossy();
            match tree.file(*inode) {
                Ok(file) => format!("{name}={}", String::from_utf8_lossy(&file.now().read(0, 100))),
                Err(_) => format!("{name}({})", show(tree, *inode)),
            }
        });
        entries.collect::<Vec<_>>().join(" ")
    }

    /// Returns all possible states after a power loss.
    fn outcomes(tree: &Tree) -> BTreeSet<String> {
        let cut = |seed| {
            let mut tree = tree.clone();
            tree.cut(seed, Duration::ZERO);
            show(&tree, ROOT)
        };
        (0..500).map(cut).collect()
    }

    fn texts(texts: &[&str]) -> BTreeSet<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    /// Returns the tree after the first `steps` steps of a file's `replace`.
    fn replace(order: Order, steps: usize) -> Tree {
        let mut tree = Tree::new(order);
        let old = tree.make(ROOT, name("f"), file(), 0o644, (0, 0)).unwrap();
        tree.write(old, 0, b"old").unwrap();
        tree.sync(old).unwrap();
        tree.sync(ROOT).unwrap();
        let new = tree.make(ROOT, name("n"), file(), 0o644, (0, 0)).unwrap();
        tree.write(new, 0, b"new").unwrap();
        if steps > 0 {
            tree.sync(new).unwrap();
        }
        if steps > 1 {
            tree.rename((ROOT, name("n")), (ROOT, name("f")), true).unwrap();
        }
        if steps > 2 {
            tree.sync(ROOT).unwrap();
        }
        tree
    }

    #[test]
    fn a_file_that_is_replaced_in_the_right_order_is_old_or_new_and_never_in_between() {
        assert_eq!(outcomes(&replace(Order::None, 1)), texts(&["f=old", "f=old n=new"]));
        assert_eq!(outcomes(&replace(Order::Kept, 1)), texts(&["f=old n=new"]), "fsync made the entry durable too");
        assert_eq!(outcomes(&replace(Order::None, 2)), texts(&["f=old", "f=old n=new", "f=new"]));
        assert_eq!(outcomes(&replace(Order::Kept, 2)), texts(&["f=old n=new", "f=new"]));
        for order in [Order::None, Order::Kept] {
            assert_eq!(outcomes(&replace(order, 3)), texts(&["f=new"]));
        }
    }

    #[test]
    fn what_was_not_synced_before_it_was_renamed_may_be_empty() {
        let mut tree = replace(Order::Kept, 0);
        tree.rename((ROOT, name("n")), (ROOT, name("f")), true).unwrap();
        tree.sync(ROOT).unwrap();
        let found = outcomes(&tree);
        assert!(found.contains("f=") && found.contains("f=new") && !found.contains("f=old"), "{found:?}");
    }

    #[test]
    fn entries_are_lost_each_by_itself_unless_their_order_is_kept() {
        let make = |order| {
            let mut tree = Tree::new(order);
            for text in ["a", "b"] {
                tree.make(ROOT, name(text), file(), 0o644, (0, 0)).unwrap();
            }
            tree
        };
        assert_eq!(outcomes(&make(Order::None)), texts(&["", "a=", "b=", "a= b="]));
        assert_eq!(outcomes(&make(Order::Kept)), texts(&["", "a=", "a= b="]));
    }

    #[test]
    fn what_is_synced_in_a_folder_that_is_not_is_lost_with_it() {
        let mut tree = Tree::new(Order::None);
        let above = tree.make(ROOT, name("a"), folder(), 0o755, (0, 0)).unwrap();
        let inside = tree.make(above, name("f"), file(), 0o644, (0, 0)).unwrap();
        tree.sync(inside).unwrap();
        tree.sync(above).unwrap();
        assert_eq!(outcomes(&tree), texts(&["", "a(f=)"]));
        tree.sync(ROOT).unwrap();
        assert_eq!(outcomes(&tree), texts(&["a(f=)"]));
        // An older change that was never synced does not undo a newer one that was.
        tree.make(ROOT, name("x"), file(), 0o644, (0, 0)).unwrap();
        tree.rename((ROOT, name("x")), (above, name("y")), true).unwrap();
        tree.sync(above).unwrap();
        assert_eq!(outcomes(&tree), texts(&["a(f= y=)"]));
    }

    #[test]
    fn what_is_removed_may_come_back_until_its_folder_is_synced() {
        let mut tree = replace(Order::None, 3);
        let inode = tree.lookup(ROOT, name("f")).unwrap();
        tree.link(inode, ROOT, name("l")).unwrap();
        tree.sync(ROOT).unwrap();
        assert_eq!(tree.node(inode).unwrap().links, 2);
        tree.unlink(ROOT, name("f")).unwrap();
        assert_eq!(tree.node(inode).unwrap().links, 1);
        assert_eq!(outcomes(&tree), texts(&["l=new", "f=new l=new"]));
        tree.cut(1, Duration::from_mins(1));
        let links = tree.folder(ROOT).unwrap().len() as u32;
        assert_eq!(tree.node(inode).unwrap().links, links);
        assert!(tree.node(inode).unwrap().modified.elapsed().unwrap() >= Duration::from_mins(1));
    }

    #[test]
    fn what_cannot_be_done_changes_nothing() {
        let mut tree = Tree::new(Order::None);
        let above = tree.make(ROOT, name("a"), folder(), 0o755, (0, 0)).unwrap();
        tree.make(above, name("f"), file(), 0o644, (0, 0)).unwrap();
        tree.make(ROOT, name("g"), file(), 0o644, (0, 0)).unwrap();
        let before = show(&tree, ROOT);
        assert_eq!(tree.make(ROOT, name("g"), file(), 0o644, (0, 0)), Err(Errno::EXIST));
        assert_eq!(tree.link(above, ROOT, name("l")), Err(Errno::PERM));
        assert_eq!(tree.unlink(ROOT, name("a")), Err(Errno::ISDIR));
        assert_eq!(tree.unlink(ROOT, name("none")), Err(Errno::NOENT));
        assert_eq!(tree.remove_folder(ROOT, name("a")), Err(Errno::NOTEMPTY));
        assert_eq!(tree.remove_folder(ROOT, name("g")), Err(Errno::NOTDIR));
        assert_eq!(tree.rename((ROOT, name("g")), (above, name("f")), false), Err(Errno::EXIST));
        assert_eq!(tree.rename((ROOT, name("g")), (ROOT, name("a")), true), Err(Errno::ISDIR));
        assert_eq!(tree.rename((ROOT, name("a")), (ROOT, name("g")), true), Err(Errno::NOTDIR));
        assert_eq!(tree.write(above, 0, b"x"), Err(Errno::ISDIR));
        assert_eq!(tree.sync(77), Err(Errno::STALE));
        assert_eq!(show(&tree, ROOT), before);
    }
}
