//! Adoption of an existing data reference without metadata, with external commits or those of another gitcd.

use std::num::NonZero;

use git2::{Oid, Repository};
use gitcd_core::keyspace::Placement;
use gitcd_core::path;
use gitcd_core::revision::Revision;
use gitcd_merge::form;

use super::super::changes;
use super::super::derive::{Derived, EVERY, Progress, derive};
use super::super::entries::Entries;
use super::super::history_link::HistoryLink;
use super::super::key_record::{KeyRecord, Location};
use super::super::reader::{Problem, Reader};
use super::super::refs::Refs;
use super::super::tree::Tree;
use super::super::trie::Trie;
use super::super::{go, object};
use super::open::{Content, Data};
use super::repository::open_repository;
use super::{AdoptError, Branch, CommittedHeads, Config, OpenError, State};

/// Options for the adoption.
pub struct Takeover<'t> {
    /// The initial state; its revision is that of the first commit with keys.
    pub state: State,
    /// The version of a new key.
    pub version: i64,
    /// How many commits to read from the head on; `None`: all. Keys that are older get the revision of the oldest commit read.
    pub depth: Option<NonZero<usize>>,
    /// Adopt the data even if there is metadata, which then stays in the history without effect.
    pub anew: bool,
    /// Checks each file.
    pub check: &'t Check<'t>,
    /// Called with the progress.
    pub progress: &'t mut dyn FnMut(Progress),
}

/// A check of a file, given its key without the prefix, and its value; returns what is wrong with it.
pub type Check<'c> = dyn Fn(&[u8], &[u8]) -> Result<(), String> + 'c;

/// Limit of rejected files that an error names.
pub(super) const NAMED: usize = 10;

impl Branch {
    /// Derives the metadata of the keys in a data reference from its history: `docs/design/git.md`, *Data without metadata*. Also
    /// returns the number of commits.
    ///
    /// Takes time for every commit, and for the size of all values. The branch gets the revision of the last commit; everything
    /// before it is compacted.
    ///
    /// # Errors
    /// [`AdoptError`], for example with the files that cannot be keys. Nothing was changed.
    pub fn adopt(config: Config, takeover: Takeover<'_>) -> Result<(Branch, usize), AdoptError> {
        let no_data = || AdoptError::NoData { reference: config.data_reference.clone() };
        let repository = open_repository(&config.repository)?.ok_or_else(no_data)?;
        let refs = Refs::open(repository.path()).map_err(OpenError::from)?;
        let read = |reference| refs.read(reference).map_err(OpenError::from);
        let previous = read(&config.metadata_reference)?;
        if previous.is_some() && !takeover.anew {
            return Err(AdoptError::Exists { reference: config.metadata_reference.clone() });
        }
        let found = read(&config.data_reference)?.ok_or_else(no_data)?;
        // Replaces an annotated tag by its commit, from which the branch continues.
        let commit = repository.odb().map_or(found, |odb| object::peeled(&odb, found));
        let Takeover { mut state, version, depth, check, progress, .. } = takeover;
        check_files(&repository, &config, commit)?;
        let derived = derive(&repository, commit, depth, state.revision, version, progress)?;
        if derived.revision > Revision::MAX_STORED.get() {
            return Err(AdoptError::Start { revision: state.revision, commits: derived.commits });
        }
        (state.revision, state.compact_revision) = (derived.revision, derived.revision);
        let (data, trie) = keys(&repository, &config, commit, &derived, check, progress)?;
        let content = Content { data, local: Tree::default(), trie, root: Entries::default() };
        let pair = CommittedHeads { data: commit, metadata: Oid::ZERO_SHA1 };
        let of_go = match previous {
            Some(previous) => go::is_metadata(&repository, previous)?.then_some(previous),
            None => None,
        };
        let mut branch = Branch::new(config, repository, refs, pair, State::default(), content);
        branch.joins.push(HistoryLink::Adopted { data: commit });
        branch.joins.extend(of_go.map(|metadata| HistoryLink::Converted { metadata }));
        let data = if commit == found { Data::Stays } else { Data::Moves { from: Some(found) } };
        branch.begin_on(&state, data, previous)?;
        Ok((branch, derived.commits))
    }
}

/// Checks for links, submodules and file names that no key has.
fn check_files(repository: &Repository, config: &Config, commit: Oid) -> Result<(), AdoptError> {
    let (_, tree) = Reader::new(repository, &config.data_reference, commit)?.commit()?;
    let strange = changes::between(repository, None, Some(tree))?.strange;
    refuse(config, commit, strange)
}

/// Returns an error if there are rejected files.
pub(super) fn refuse(config: &Config, commit: Oid, files: Vec<(Vec<u8>, String)>) -> Result<(), AdoptError> {
    if files.is_empty() {
        return Ok(());
    }
    let more = files.len().saturating_sub(NAMED);
    let files = files.into_iter().take(NAMED).map(|(path, reason)| (path.escape_ascii().to_string(), reason)).collect();
    Err(AdoptError::Files { reference: config.data_reference.clone(), commit, files, more })
}

fn keys(
    repository: &Repository,
    config: &Config,
    commit: Oid,
    derived: &Derived,
    check: &Check<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Tree, Trie), AdoptError> {
    let reader = Reader::new(repository, &config.data_reference, commit)?;
    let data = reader.tree(b"", reader.commit()?.1)?;
    let mut files = Vec::with_capacity(data.len());
    data.each(|path, oid| files.push((path.to_vec(), oid)));
    let (mut trie, mut refused, all) = (Trie::default(), Vec::new(), Some(files.len()));
    for (done, (file, oid)) in files.into_iter().enumerate() {
        if done % EVERY == 0 {
            progress(Progress { what: "values", done, all });
        }
        let relative = match path::decode(file.split(|b| *b == b'/')) {
            Ok(relative) => relative,
            Err(error) => {
                refused.push((file, error.to_string()));
                continue;
            }
        };
        let key = config.keys.absolute(&relative);
        if config.keys.placement(&key) != Placement::Data {
            refused.push((file, "its key is ephemeral here, and never in Git".into()));
            continue;
        }
        let blob = reader.blob(&file, oid)?;
        if let Err(reason) = check(&relative, blob.data()) {
            refused.push((file, reason));
            continue;
        }
        let record = *derived.records.get(&relative).ok_or_else(|| reader.error(&file, Problem::NoKey))?;
        let form = form::guess(blob.data());
        let is_new = trie.put(KeyRecord { key: key.into(), record, form, home: Location::Data });
        if !is_new {
            return Err(reader.error(&file, Problem::Twice).into());
        }
    }
    refuse(config, commit, refused)?;
    Ok((data, trie))
}
