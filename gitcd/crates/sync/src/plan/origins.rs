//! Search for the commits that brought files.

use std::collections::{BTreeSet, HashMap};

use git2::{Commit, Oid, Repository};
use gitcd_merge::admit::Origin;

use gitcd_repo::changes;
use gitcd_repo::graph::{self, Graph};
use gitcd_repo::object;

use super::Provenance;

/// The kind of commit that brought a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Brought {
    /// An external commit.
    By(Origin),
    /// A commit by gitcd of its clients' writes.
    ByStore,
    /// A merge by gitcd, which made the value from two that had both been accepted.
    Merged(Origin),
    /// A commit that is not here, as below the boundary of a shallow clone.
    Unknown,
    /// A commit that gitcd removed when it cut the history. It counts as an external one, whose files are checked.
    Removed,
}

/// The commits that brought files. A search costs as much as the changes in the commits on the path, however many files there
/// are.
#[derive(Debug)]
pub(super) struct Origins {
    provenance: Provenance,
    asked: Vec<(Vec<u8>, Oid)>,
    found: HashMap<Vec<u8>, Brought>,
}

impl Origins {
    pub(super) fn new(provenance: Provenance) -> Self {
        Self { provenance, asked: Vec::new(), found: HashMap::new() }
    }

    /// Returns what brought a file, if it was searched for.
    pub(super) fn get(&self, relative: &[u8]) -> Option<Brought> {
        self.found.get(relative).copied()
    }

    /// Requests a search for a file with this content.
    pub(super) fn ask(&mut self, relative: &[u8], blob: Oid) {
        self.asked.push((relative.to_vec(), blob));
    }

    /// Searches the history of a commit for all requested files; returns the files.
    pub(super) fn find(&mut self, graph: &mut Graph, repository: &Repository, from: Oid) -> Vec<(Vec<u8>, Oid)> {
        let asked = std::mem::take(&mut self.asked);
        let mut walk =
            Walk { graph, repository, provenance: self.provenance, waiting: BTreeSet::new(), files: HashMap::new() };
        walk.go_on(from, (0..asked.len()).collect());
        while let Some((commit, files)) = walk.next() {
            for (file, origin) in walk.look(commit, files, &asked) {
                self.found.insert(asked[file].0.clone(), origin);
            }
        }
        for (relative, _) in &asked {
            self.found.entry(relative.clone()).or_insert(Brought::Unknown);
        }
        asked
    }
}

struct Walk<'a> {
    graph: &'a mut Graph,
    repository: &'a Repository,
    provenance: Provenance,
    /// Commits to visit by time: the newest first, so that few are visited twice.
    waiting: BTreeSet<(i64, Oid)>,
    /// Indexes of the files that are in a commit as they are at the start.
    files: HashMap<Oid, Vec<usize>>,
}

impl Walk<'_> {
    fn next(&mut self) -> Option<(Oid, Vec<usize>)> {
        let (_, commit) = self.waiting.pop_last()?;
        Some((commit, self.files.remove(&commit).unwrap_or_default()))
    }

    /// Continues at a commit. The search ends where a commit cannot be read, as below the boundary of a shallow clone.
    fn go_on(&mut self, commit: Oid, files: Vec<usize>) {
        if let Ok(found) = self.graph.commit(self.repository, commit) {
            self.waiting.insert((found.time, commit));
            self.files.entry(commit).or_default().extend(files);
        }
    }

    /// Passes files on to the parents that have them unchanged; returns the rest.
    fn look(&mut self, oid: Oid, mut files: Vec<usize>, asked: &[(Vec<u8>, Oid)]) -> Vec<(usize, Brought)> {
        let Ok(here) = self.graph.commit(self.repository, oid) else { return Vec::new() };
        if here.is_boundary {
            return files.into_iter().map(|file| (file, Brought::Removed)).collect();
        }
        for parent in &here.parents {
            if files.is_empty() {
                break;
            }
            let Some(same) = self.same(&here, *parent, &files, asked) else { return Vec::new() };
            let (passed, kept) = files.into_iter().partition(|file| same.contains(file));
            files = kept;
            self.go_on(*parent, passed);
        }
        if files.is_empty() {
            return Vec::new();
        }
        let origin = Origin { commit: object::bytes(oid), time: here.time };
        let commit =
            (self.provenance == Provenance::ByMessage).then(|| self.repository.find_commit(oid).ok()).flatten();
        let brought = match commit {
            Some(commit) if is_of_a_store(&commit) => Brought::ByStore,
            Some(commit) if is_merge_of_a_store(&commit) => Brought::Merged(origin),
            _ => Brought::By(origin),
        };
        files.into_iter().map(|file| (file, brought)).collect()
    }

    /// Returns the files that a parent has unchanged.
    fn same(
        &mut self,
        here: &graph::Commit,
        parent: Oid,
        files: &[usize],
        asked: &[(Vec<u8>, Oid)],
    ) -> Option<BTreeSet<usize>> {
        let tree = self.graph.commit(self.repository, parent).ok()?.tree;
        let changes = changes::between(self.repository, Some(tree), Some(here.tree)).ok()?;
        Some(files.iter().copied().filter(|file| !changes.keys.contains_key(&asked[*file].0)).collect())
    }
}

/// Returns whether gitcd committed its clients' writes here, by the last paragraph of the message. If a person amends or
/// cherry-picks such a commit, the committer or its time differs from the author's.
fn is_of_a_store(commit: &Commit<'_>) -> bool {
    let (author, committer) = (commit.author(), commit.committer());
    let message = String::from_utf8_lossy(commit.message_bytes());
    let (head, last) = message.trim_end().rsplit_once("\n\n").unwrap_or_default();
    let revisions = last.lines().next().and_then(|line| line.strip_prefix("Revision: "));
    let number = |text: &str| text.parse::<u64>().ok().filter(|number| number.to_string() == text);
    let is_range = |text: &str| match text.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)).is_some_and(|(first, last)| first < last),
        None => number(text).is_some(),
    };
    commit.parent_count() <= 1
        && author.when() == committer.when()
        && author.email_bytes() == committer.email_bytes()
        && ["create ", "update ", "delete "].iter().any(|verb| head.starts_with(verb))
        && !head.contains('\n')
        && revisions.is_some_and(is_range)
        && last.lines().skip(1).all(|line| line.starts_with("Client: ") || line.starts_with("Actor: {"))
}

/// Returns whether gitcd made this merge: the message is a function of the parents (`docs/design/merge.md`, *The commit*).
pub(super) fn is_merge_of_a_store(commit: &Commit<'_>) -> bool {
    let short: Vec<String> = commit.parent_ids().map(|oid| oid.to_string()[..10].to_owned()).collect();
    let [one, other] = &short[..] else { return false };
    let message = String::from_utf8_lossy(commit.message_bytes());
    message.lines().next() == Some(&*format!("merge {one} and {other}"))
}

#[cfg(test)]
mod tests {
    use git2::{Signature, Time};

    use super::*;

    struct History {
        repository: Repository,
        _folder: tempfile::TempDir,
    }

    impl History {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let repository = Repository::init_bare(folder.path()).unwrap();
            Self { repository, _folder: folder }
        }

        fn commit(&self, at: i64, message: &str, files: &[(&str, &str)], parents: &[Oid]) -> Oid {
            let mut tree = self.repository.treebuilder(None).unwrap();
            for (name, content) in files {
                tree.insert(name, self.repository.blob(content.as_bytes()).unwrap(), 0o100_644).unwrap();
            }
            let tree = self.repository.find_tree(tree.write().unwrap()).unwrap();
            let author = Signature::new("a", "a@b", &Time::new(at, 0)).unwrap();
            let parents: Vec<_> = parents.iter().map(|parent| self.repository.find_commit(*parent).unwrap()).collect();
            self.repository.commit(None, &author, &author, message, &tree, &parents.iter().collect::<Vec<_>>()).unwrap()
        }

        fn origins(&self, from: Oid, files: &[(&str, &str)]) -> Vec<Brought> {
            self.origins_by(Provenance::ByMessage, from, files)
        }

        fn origins_by(&self, provenance: Provenance, from: Oid, files: &[(&str, &str)]) -> Vec<Brought> {
            let mut origins = Origins::new(provenance);
            for (name, content) in files {
                let blob = Oid::hash_object(git2::ObjectType::Blob, content.as_bytes()).unwrap();
                origins.ask(name.as_bytes(), blob);
            }
            let asked = origins.find(&mut Graph::default(), &self.repository, from);
            asked.iter().map(|(relative, _)| origins.get(relative).expect("it was searched for")).collect()
        }
    }

    fn by((commit, time): (Oid, i64)) -> Brought {
        Brought::By(Origin { commit: object::bytes(commit), time })
    }

    #[test]
    fn each_file_is_of_the_commit_that_brought_it() {
        let history = History::new();
        let [a, b, c, d] = [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")];
        let first = history.commit(10, "first", &[a, ("b", "0")], &[]);
        let store = history.commit(20, "update d\n\nRevision: 7\nClient: x\n", &[a, ("b", "0"), d], &[first]);
        let second = history.commit(30, "second", &[a, b, d], &[store]);
        // The clock of a concurrent author is wrong.
        let beside = history.commit(5, "beside", &[a, ("b", "0"), c], &[first]);
        let merged = history.commit(40, "merge", &[a, b, c, d], &[second, beside]);
        let last = history.commit(50, "last", &[a, b, c, d, ("e", "1")], &[merged]);
        let found = history.origins(last, &[a, b, c, d]);
        assert_eq!(found, [by((first, 10)), by((second, 30)), by((beside, 5)), Brought::ByStore]);
        assert_eq!(history.origins(merged, &[]), []);
    }

    #[test]
    fn an_external_commit_that_mentions_revisions_is_not_one_of_gitcd() {
        let history = History::new();
        let (a, first) = (("a", "1"), history.commit(10, "first", &[], &[]));
        for (message, is_store) in [
            ("update a\n\nRevision: 7-9\nClient: x (y)\nClient: z\n", true),
            ("create 3 pods, update a\n\nRevision: 7\n", true),
            ("update a\n\nRevision: 7\nClient: x\nActor: {\"user\":\"jane\"}\nActor: {\"user\":\"bob\"}\n", true),
            ("update a\n\nRevision: 2 of the rollout\n", false),
            ("update a\n\nRevision: 9-7\n", false),
            ("update a\n\nRevision: 07\n", false),
            ("tidy up\n\nRevision: 7\n", false),
            ("update a\n\nRevision: 7\nSigned-off-by: ann\n", false),
            ("update a\n\nRevision: 7\n\nmore\n", false),
            ("Revision: 7\n", false),
        ] {
            let commit = history.commit(20, message, &[a], &[first]);
            assert_eq!(
                history.origins(commit, &[a]),
                [if is_store { Brought::ByStore } else { by((commit, 20)) }],
                "{message}"
            );
        }
    }

    #[test]
    fn a_message_of_gitcd_proves_nothing_if_all_commits_are_external() {
        let history = History::new();
        let (a, first) = (("a", "1"), history.commit(10, "first", &[], &[]));
        let commit = history.commit(20, "update a\n\nRevision: 7\n", &[a], &[first]);
        assert_eq!(history.origins_by(Provenance::ByMessage, commit, &[a]), [Brought::ByStore]);
        assert_eq!(history.origins_by(Provenance::External, commit, &[a]), [by((commit, 20))]);
    }

    #[test]
    fn a_value_merged_by_gitcd_is_its_own() {
        let history = History::new();
        let first = history.commit(10, "first", &[("a", "0")], &[]);
        let [one, other] =
            ["1", "2"].map(|value| history.commit(20, "update a\n\nRevision: 7\n", &[("a", value)], &[first]));
        let short = |oid: Oid| oid.to_string()[..10].to_owned();
        let message = format!("merge {} and {}\n", short(one), short(other));
        let merged = history.commit(30, &message, &[("a", "3")], &[one, other]);
        assert_eq!(
            history.origins(merged, &[("a", "3")]),
            [Brought::Merged(Origin { commit: object::bytes(merged), time: 30 })]
        );
        let by_hand = history.commit(30, "Merge branch 'x'\n", &[("a", "3")], &[one, other]);
        assert_eq!(history.origins(by_hand, &[("a", "3")]), [by((by_hand, 30))]);
    }

    #[test]
    fn a_restored_key_comes_from_the_commit_that_restored_it() {
        let history = History::new();
        let a = ("a", "1");
        let first = history.commit(10, "first", &[a], &[]);
        let without = history.commit(20, "without", &[("a", "2")], &[first]);
        let again = history.commit(30, "again", &[a], &[without]);
        assert_eq!(history.origins(again, &[a]), [by((again, 30))]);
        // Through the other parent it was always there.
        let merged = history.commit(40, "merged", &[a], &[without, first]);
        assert_eq!(history.origins(merged, &[a]), [by((first, 10))]);
    }
}
