//! Takes over a data reference that people made.

use git2::{Oid, Repository};

use super::super::entries::Entries;
use super::super::join::Join;
use super::super::line::{Home, Line, Record};
use super::super::reader::{Problem, Reader};
use super::super::refs::Refs;
use super::super::tree::Tree;
use super::super::trie::Trie;
use super::super::{form, path};
use super::open::Content;
use super::repository::open_repository;
use super::{AdoptError, Branch, Config, OpenError, Pair, State};
use crate::keyspace::Placement;

impl Branch {
    /// Derives the metadata from the tree of a data reference that has none: every file becomes a key that was created at
    /// the revision of `state` and has this version.
    ///
    /// Takes time in proportion to the size of all values, which are read once.
    ///
    /// # Errors
    /// [`AdoptError`], among others for the first file that no key is stored as.
    pub fn adopt(config: Config, state: &State, version: i64) -> Result<Branch, AdoptError> {
        Self::take_over(config, state, version, false)
    }

    /// The same whether or not there is metadata: what there was stays in the history, but counts no more.
    ///
    /// # Errors
    /// As for [`Branch::adopt`], but not [`AdoptError::Exists`].
    pub fn adopt_anew(config: Config, state: &State, version: i64) -> Result<Branch, AdoptError> {
        Self::take_over(config, state, version, true)
    }

    fn take_over(config: Config, state: &State, version: i64, anew: bool) -> Result<Branch, AdoptError> {
        let no_data = || AdoptError::NoData { reference: config.data_reference.clone() };
        let repository = open_repository(&config.repository)?.ok_or_else(no_data)?;
        let refs = Refs::open(repository.path()).map_err(OpenError::from)?;
        let read = |reference| refs.read(reference).map_err(OpenError::from);
        let previous = read(&config.metadata_reference)?;
        if previous.is_some() && !anew {
            return Err(AdoptError::Exists { reference: config.metadata_reference.clone() });
        }
        let commit = read(&config.data_reference)?.ok_or_else(no_data)?;
        let (data, trie) = derive(&repository, &config, commit, state.revision, version)?;
        let content = Content { data, local: Tree::default(), trie, root: Entries::default() };
        let pair = Pair { data: commit, metadata: Oid::ZERO_SHA1 };
        let mut branch = Branch::new(config, repository, refs, pair, State::default(), content);
        branch.joins.push(Join::Adopted { data: commit });
        branch.begin(state, Some(commit), previous)?;
        Ok(branch)
    }
}

fn derive(
    repository: &Repository,
    config: &Config,
    commit: Oid,
    revision: i64,
    version: i64,
) -> Result<(Tree, Trie), AdoptError> {
    let reader = Reader::new(repository, &config.data_reference, commit)?;
    let data = reader.tree(b"", reader.commit()?.1)?;
    let record = Record { create_revision: revision, mod_revision: revision, version, lease: 0 };
    let mut files = Vec::with_capacity(data.len());
    data.each(|path, oid| files.push((path.to_vec(), oid)));
    let mut trie = Trie::default();
    for (file, oid) in files {
        let shown = || String::from_utf8_lossy(&file).into_owned();
        let key = path::decode(file.split(|b| *b == b'/')).map_err(|source| AdoptError::Path {
            path: shown(),
            commit,
            source,
        })?;
        let key = config.keys.absolute(&key);
        if config.keys.placement(&key) != Placement::Data {
            return Err(AdoptError::Placement { path: shown(), commit });
        }
        let form = form::guess(reader.blob(&file, oid)?.data());
        let is_new = trie.put(Line { key: key.into(), record, form, home: Home::Data });
        if !is_new {
            return Err(reader.error(&file, Problem::Twice).into());
        }
    }
    Ok((data, trie))
}
