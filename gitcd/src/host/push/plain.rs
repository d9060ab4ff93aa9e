//! The pushes of those who follow a branch, taken in without starting a program: a few commits of plain files on top of what is here.
//!
//! What is looked at here is a part of what `git index-pack --strict` and `git rev-list` look at, and what passes is surely sound and
//! complete for them, too. Whatever does not pass is left to them.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use git2::{ObjectType, Odb, Oid, Repository};

use super::super::input::Input;
use super::super::problem::Problem;
use super::quarantine::Quarantine;
use crate::git::changes;
use crate::git::graph::Graph;
use crate::git::object;
use crate::git::received::{self, Bounds, Received};

/// A larger pack is Git's.
const MAX_BYTES: usize = 4 << 20;
const MAX_OBJECTS: u32 = 16_384;
/// Bytes of all its objects.
const MAX_CONTENT: usize = 32 << 20;
/// Directories below one another. A stack has room for more, and keys of this depth are rare.
const MAX_DEPTH: usize = 128;
/// Each is compared with.
const MAX_PARENTS: usize = 16;

/// A reference that is to be moved to a commit.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) reference: String,
    pub(super) id: Oid,
}

/// Takes the pack in and returns its objects if all of it is plain; otherwise leaves the quarantine empty and the pack to be read.
pub(super) async fn unpack(
    repository: &Path,
    quarantine: &Quarantine,
    most: u64,
    wanted: Vec<Wanted>,
    input: &mut Input,
) -> Result<Option<Received>, Problem> {
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(MAX_BYTES);
    let Some(pack) = input.whole(most).await? else { return Ok(None) };
    let (repository, folder) = (repository.to_owned(), quarantine.folder().to_owned());
    let taken = tokio::task::spawn_blocking(move || {
        let taken = take(&repository, &folder, &pack, &wanted).unwrap_or(None);
        if taken.is_none() {
            empty(&folder.join("pack"));
        }
        taken
    });
    let taken = taken.await.map_err(|_| Problem::Failed)?;
    if taken.is_some() {
        input.drain(u64::MAX).await;
    }
    Ok(taken)
}

/// What is left is looked at again by Git, or removed with the quarantine.
fn empty(packs: &Path) {
    for entry in std::fs::read_dir(packs).into_iter().flatten().flatten() {
        let _gone = std::fs::remove_file(entry.path());
    }
}

fn take(repository: &Path, folder: &Path, pack: &[u8], wanted: &[Wanted]) -> Result<Option<Received>, git2::Error> {
    let here = Repository::open(repository)?;
    let odb = here.odb()?;
    let bounds = Bounds { objects: MAX_OBJECTS, bytes: MAX_CONTENT };
    let Ok(received) = received::read(pack, &odb, bounds) else { return Ok(None) };
    let mut new = HashMap::new();
    for (kind, oid, content) in received.objects() {
        let is_plain = match kind {
            ObjectType::Blob => true,
            ObjectType::Tree => changes::is_plain(content),
            ObjectType::Commit => is_plain_commit(content),
            _ => false,
        };
        if !is_plain {
            return Ok(None);
        }
        new.insert(oid, kind);
    }
    received.show(&here)?;
    let mut check = Check { here: &here, odb: here.odb()?, new, graph: Graph::default(), trees: HashSet::new() };
    // What cannot be written Git cannot write either, and says why.
    let is_taken = check.are_complete(wanted)? && received.draft(&folder.join("pack")).is_ok();
    Ok(is_taken.then_some(received))
}

/// Whether a commit is as Git itself writes it: nothing but a tree, parents, an author and a committer in the head.
fn is_plain_commit(content: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(content) else { return false };
    let Some((head, _message)) = text.split_once("\n\n") else { return false };
    let is_id = |text: &str| text.len() == 40 && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    let mut lines = head.split('\n').peekable();
    if !lines.next().and_then(|line| line.strip_prefix("tree ")).is_some_and(is_id) {
        return false;
    }
    while let Some(parent) = lines.peek().and_then(|line| line.strip_prefix("parent ")) {
        if !is_id(parent) {
            return false;
        }
        lines.next();
    }
    let mut is_person = |word: &str| lines.next().and_then(|line| line.strip_prefix(word)).is_some_and(is_plain_person);
    is_person("author ")
        && is_person("committer ")
        && lines.next().is_none()
        && !head.contains('\r')
        && !content.contains(&0)
}

/// `Name <mail> 1700000000 +0100`
fn is_plain_person(text: &str) -> bool {
    let Some((name, rest)) = text.split_once(" <") else { return false };
    let Some((mail, rest)) = rest.split_once("> ") else { return false };
    let Some((time, zone)) = rest.split_once(' ') else { return false };
    let is_number =
        |text: &str, most: usize| !text.is_empty() && text.len() <= most && text.bytes().all(|c| c.is_ascii_digit());
    let is_free = |text: &str| !text.is_empty() && !text.contains(['<', '>', '\n']);
    is_free(name)
        && is_free(mail)
        && is_number(time, 10)
        && (time == "0" || !time.starts_with('0'))
        && zone.len() == 5
        && zone.starts_with(['+', '-'])
        && is_number(&zone[1..], 4)
}

struct Check<'r> {
    here: &'r Repository,
    /// What is here and what has come.
    odb: Odb<'r>,
    /// What has come.
    new: HashMap<Oid, ObjectType>,
    graph: Graph,
    /// Those that are known to be complete.
    trees: HashSet<Oid>,
}

impl Check<'_> {
    /// Whether everything that the wanted commits lead to has come, or is in the history of the references.
    fn are_complete(&mut self, wanted: &[Wanted]) -> Result<bool, git2::Error> {
        // A commit of metadata names the one of data that it describes, so the references of a push belong together.
        let target = |wanted: &Wanted| self.here.find_reference(&wanted.reference).ok()?.target();
        let now: Vec<Oid> = wanted.iter().filter_map(target).collect();
        for Wanted { id, .. } in wanted {
            let (mut stack, mut seen) = (vec![*id], HashSet::new());
            while let Some(oid) = stack.pop() {
                if !seen.insert(oid) {
                    continue;
                }
                match self.new.get(&oid) {
                    Some(ObjectType::Commit) => {
                        let commit = self.here.find_commit(oid)?;
                        stack.extend(commit.parent_ids());
                        if commit.parent_count() > MAX_PARENTS {
                            return Ok(false);
                        }
                        let before = commit.parents().map(|parent| parent.tree_id()).collect::<Vec<_>>();
                        if !self.is_tree_complete(commit.tree_id(), &before, 0)? {
                            return Ok(false);
                        }
                    }
                    Some(_) => return Ok(false),
                    None => {
                        let mut leads = |now: &Oid| self.graph.is_ancestor(self.here, oid, *now).unwrap_or(false);
                        let is_there = now.contains(&oid) || now.iter().any(&mut leads);
                        if !is_there {
                            return Ok(false);
                        }
                    }
                }
            }
        }
        Ok(!wanted.is_empty())
    }

    /// Whether a tree's objects have come, as far as they are not in the trees `before`, which are complete.
    fn is_tree_complete(&mut self, tree: Oid, before: &[Oid], depth: usize) -> Result<bool, git2::Error> {
        if before.contains(&tree) || self.trees.contains(&tree) {
            return Ok(true);
        }
        if depth > MAX_DEPTH || self.new.get(&tree) != Some(&ObjectType::Tree) {
            return Ok(false);
        }
        let entries = {
            let read = |oid: Oid| object::read(&self.odb, oid);
            let object = read(tree)?;
            let old = before.iter().map(|oid| Ok((*oid, read(*oid)?))).collect::<Result<Vec<_>, git2::Error>>()?;
            let old: Vec<_> = old.iter().map(|(oid, object)| (*oid, object.data())).collect();
            let Ok(entries) = changes::added(tree, object.data(), &old) else { return Ok(false) };
            entries
        };
        for entry in entries {
            let is_complete = if entry.is_directory {
                self.is_tree_complete(entry.oid, &entry.before, depth + 1)?
            } else {
                self.new.get(&entry.oid) == Some(&ObjectType::Blob)
            };
            if !is_complete {
                return Ok(false);
            }
        }
        self.trees.insert(tree);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_commits_pass() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        let person = "A B <a@b> 1700000000 +0100";
        let commit = |head: &str| is_plain_commit(format!("{head}\n\nmessage\n").as_bytes());
        assert!(commit(&format!("tree {id}\nparent {id}\nparent {id}\nauthor {person}\ncommitter {person}")));
        assert!(commit(&format!("tree {id}\nauthor {person}\ncommitter {person}")));
        for head in [
            format!("tree {id}\nauthor {person}"),
            format!("parent {id}\nauthor {person}\ncommitter {person}"),
            format!("tree {id}\nauthor {person}\nparent {id}\ncommitter {person}"),
            format!("tree {id}\nauthor {person}\r\ncommitter {person}"),
            format!("tree {id}\nauthor {person}\ncommitter {person}\r"),
            format!("tree {id}\nauthor {person}\ncommitter {person}\ngpgsig x"),
            format!("tree {}\nauthor {person}\ncommitter {person}", &id[1..]),
            format!("tree {id}\nauthor A B a@b 1700000000 +0100\ncommitter {person}"),
            format!("tree {id}\nauthor A B <a@b> 0700000000 +0100\ncommitter {person}"),
            format!("tree {id}\nauthor A B <a@b> 1700000000 0100\ncommitter {person}"),
        ] {
            assert!(!commit(&head), "{head}");
        }
        assert!(!is_plain_commit(b"tree"));
    }
}
