//! The parents of all commits of a repository, read once: a walk of them reads no objects.

use std::collections::HashMap;

use git2::{Oid, Repository};
use gitcd_repo::graph::{Graph, GraphError};

/// All commits that some commits lead to. Memory: about 60 bytes for each.
#[derive(Debug, Default)]
pub(super) struct Lineage {
    numbers: HashMap<Oid, u32>,
    commits: Vec<Oid>,
    /// The parents of all commits, in order of the commits.
    parents: Vec<u32>,
    /// Where the parents of each commit end.
    ends: Vec<usize>,
}

impl Lineage {
    /// Reads each commit once.
    pub(super) fn read(
        graph: &mut Graph,
        repository: &Repository,
        tips: impl Iterator<Item = Oid>,
    ) -> Result<Self, GraphError> {
        let mut found = Self::default();
        tips.for_each(|tip| {
            found.number(tip);
        });
        // Parents are appended, so this is a search in breadth.
        while let Some(oid) = found.commits.get(found.ends.len()).copied() {
            for parent in &graph.commit(repository, oid)?.parents {
                let parent = found.number(*parent);
                found.parents.push(parent);
            }
            found.ends.push(found.parents.len());
        }
        Ok(found)
    }

    fn number(&mut self, oid: Oid) -> u32 {
        let next = u32::try_from(self.commits.len()).expect("a repository has fewer than 2^32 commits");
        let number = *self.numbers.entry(oid).or_insert(next);
        if number == next {
            self.commits.push(oid);
        }
        number
    }

    /// Returns these commits and their ancestors. Costs some 10 ns for each.
    pub(super) fn ancestors(&self, of: &[Oid]) -> Ancestors<'_> {
        let mut found = vec![false; self.commits.len()];
        let mut waiting: Vec<u32> = of.iter().filter_map(|oid| self.numbers.get(oid).copied()).collect();
        while let Some(number) = waiting.pop() {
            let at = number as usize;
            if !std::mem::replace(&mut found[at], true) {
                let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
                waiting.extend_from_slice(&self.parents[start..self.ends[at]]);
            }
        }
        Ancestors { lineage: self, found }
    }
}

/// Some commits and their ancestors.
#[derive(Debug)]
pub(super) struct Ancestors<'l> {
    lineage: &'l Lineage,
    found: Vec<bool>,
}

impl Ancestors<'_> {
    pub(super) fn has(&self, oid: Oid) -> bool {
        self.lineage.numbers.get(&oid).is_some_and(|number| self.found[*number as usize])
    }
}

#[cfg(test)]
mod tests {
    use git2::{Signature, Time};

    use super::*;

    #[test]
    fn ancestors_are_those_of_the_graph() {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let commit = |parents: &[Oid], message: &str| {
            let tree = repository.treebuilder(None).unwrap().write().unwrap();
            let tree = repository.find_tree(tree).unwrap();
            let author = Signature::new("a", "a@b", &Time::new(1, 0)).unwrap();
            let parents: Vec<_> = parents.iter().map(|parent| repository.find_commit(*parent).unwrap()).collect();
            let parents: Vec<_> = parents.iter().collect();
            repository.commit(None, &author, &author, message, &tree, &parents).unwrap()
        };
        let root = commit(&[], "root");
        let [one, other] = [commit(&[root], "one"), commit(&[root], "other")];
        let merge = commit(&[one, other], "merge");
        let (alone, all) = (commit(&[], "alone"), [root, one, other, merge]);
        let mut graph = Graph::default();
        let lineage = Lineage::read(&mut graph, &repository, [merge, alone, one].into_iter()).unwrap();
        for of in all.iter().chain([&alone]) {
            let found = lineage.ancestors(&[*of]);
            let expected = graph.ancestors(&repository, &[*of], &std::collections::HashSet::new()).unwrap();
            assert!(all.iter().chain([&alone]).all(|oid| found.has(*oid) == expected.contains(oid)), "{of}");
        }
        assert!(!lineage.ancestors(&[root, alone]).has(merge));
    }
}
