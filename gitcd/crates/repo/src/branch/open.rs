//! Creates and opens branches.

use std::path::PathBuf;
use std::time::SystemTime;

use git2::{Oid, Repository};
use gitcd_core::durable;

use super::super::alternates::ObjectsInUse;
use super::super::entries::Entries;
use super::super::graph::Graph;
use super::super::load::{Names, Snapshot};
use super::super::reader::{Parents, Reader};
use super::super::refs::Refs;
use super::super::tree::Tree;
use super::super::trie::Trie;
use super::super::{go, message, object, pack, pack_spill};
use super::repository::{finish, init, open_repository};
use super::{
    Branch, CommittedHeads, Config, CreateError, FlushError, OpenError, Revisions, State, is_to_be_merged, show,
};

/// The content of a branch in memory.
pub(super) struct Content {
    pub(super) data: Tree,
    pub(super) local: Tree,
    pub(super) trie: Trie,
    pub(super) root: Entries,
}

/// What to do with the data reference of a new branch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Data {
    /// Leave it: it is right, or has external commits.
    Stays,
    /// Move it to the described data.
    Moves { from: Option<Oid> },
}

impl Branch {
    /// Creates a branch without keys, and the repository if it does not exist (bare, with the data reference as `HEAD`).
    ///
    /// # Errors
    /// [`CreateError`], for example if one of the references exists.
    pub fn create(config: Config, state: &State) -> Result<Branch, CreateError> {
        Branch::create_with(config, state, None, || Ok(()))
    }

    /// Does the same as [`Branch::create`], with a first commit of some keys. `before` is called once nothing prevents the
    /// creation, and before anything is visible.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create_with<'r>(
        config: Config,
        state: &State,
        revisions: impl Into<Option<&'r Revisions>>,
        before: impl FnOnce() -> Result<(), durable::Error>,
    ) -> Result<Branch, CreateError> {
        let repository = match open_repository(&config.repository)? {
            Some(repository) => {
                // The process that created it may have been killed before it was durable.
                finish(repository.path())?;
                repository
            }
            None => init(&config)?,
        };
        let refs = Refs::open(repository.path()).map_err(OpenError::from)?;
        for reference in [&config.metadata_reference, &config.data_reference] {
            if refs.read(reference).map_err(OpenError::from)?.is_some() {
                return Err(CreateError::Exists { reference: reference.clone() });
            }
        }
        let content =
            Content { data: Tree::default(), local: Tree::default(), trie: Trie::default(), root: Entries::default() };
        let zero = CommittedHeads { data: Oid::ZERO_SHA1, metadata: Oid::ZERO_SHA1 };
        let mut branch = Branch::new(config, repository, refs, zero, State::default(), content);
        let tree = branch.data.write(&mut branch.pack);
        let message = format!("start an empty store\n\n{}", message::trailers(state.revision, state.revision, &[]));
        branch.data_commit = branch.write_commit(tree, &[], SystemTime::now(), &message);
        if let Some(revisions) = revisions.into() {
            // A restored branch may be larger than memory should hold twice.
            branch.pack.spill.set_folder(branch.repository.path().join("objects/pack"));
            branch.commit(revisions)?;
        }
        before()?;
        branch.begin(state, None, None)?;
        branch.pack.spill = pack_spill::PackSpill::default();
        Ok(branch)
    }

    /// Opens a branch and completes a move of its references that a crash interrupted; `None` if the branch or the repository
    /// does not exist. If the repository reads objects of others, no gitcd deletes any there as long as the branch is open.
    ///
    /// Reads directories and metadata, not values.
    ///
    /// # Errors
    /// [`OpenError`], notably [`OpenError::ForeignChange`] and [`OpenError::NoMetadata`].
    pub fn open(config: Config) -> Result<Option<Branch>, OpenError> {
        let Some(repository) = open_repository(&config.repository)? else {
            return Ok(None);
        };
        let in_use = ObjectsInUse::others(repository.commondir());
        let branch = Branch::open_in(config, repository)?;
        Ok(branch.map(|branch| Branch { _in_use: in_use, ..branch }))
    }

    fn open_in(config: Config, repository: Repository) -> Result<Option<Branch>, OpenError> {
        let names = names(&config);
        let file = pair_file(&repository, &config);
        let refs = Refs::open(repository.path())?;
        for name in [&names.data, &names.metadata] {
            refs.release(name)?;
            // The references must be durable before anything that builds on them.
            refs.settle(name)?;
        }
        let data = refs.read(&names.data)?;
        let Some(metadata) = refs.read(&names.metadata)? else {
            let (reference, metadata_reference) = (names.data, names.metadata);
            return match (data, CommittedHeads::read(&file)?) {
                (Some(_), _) => Err(OpenError::NoMetadata { reference, metadata_reference }),
                (None, Some(pair)) => Err(OpenError::Vanished { reference, metadata_reference, pair, file }),
                (None, None) => Ok(None),
            };
        };
        // Check this before reading the metadata in the wrong format.
        if go::is_metadata(&repository, metadata).unwrap_or(false) {
            return Err(OpenError::OfGo { reference: names.metadata });
        }
        let parents = Reader::new(&repository, &names.metadata, metadata)?.parents()?;
        if data != Some(parents.data) {
            let recorded = CommittedHeads::read(&file)?;
            if !is_half_done(recorded, parents, data) && !is_behind_in_clone(&repository, recorded, parents, data) {
                let ours = recorded.map_or(parents.data, |recorded| recorded.data);
                let Some(found) = data.filter(|found| is_to_be_merged(&repository, *found, ours)) else {
                    let (reference, expected, found) = (names.data, parents.data, show(data));
                    return Err(if repository.is_shallow() && repository.find_commit(expected).is_err() {
                        OpenError::Shallow { reference, expected, found }
                    } else {
                        OpenError::ForeignChange { reference, expected, found }
                    });
                };
                let snapshot = Snapshot::read(&repository, &names, metadata)?;
                let is_merged = Graph::default().is_ancestor(&repository, found, parents.data).unwrap_or(false);
                if is_merged {
                    // A crash prevented this move.
                    refs.update(&names.data, parents.data, data)?;
                }
                let mut branch = Branch::resume(config, repository, refs, snapshot)?;
                branch.foreign = (!is_merged).then_some(found);
                return Ok(Some(branch));
            }
            if recorded.is_none() && data.is_some() {
                tracing::warn!(to = %parents.data, "data and metadata were fetched at different moments: bringing the data up to its metadata");
            }
            // Read everything first, so that the reference never moves to a broken commit.
            let snapshot = Snapshot::read(&repository, &names, metadata)?;
            refs.update(&names.data, parents.data, data)?;
            return Branch::resume(config, repository, refs, snapshot).map(Some);
        }
        let snapshot = Snapshot::read(&repository, &names, metadata)?;
        Branch::resume(config, repository, refs, snapshot).map(Some)
    }

    fn resume(config: Config, repository: Repository, refs: Refs, snapshot: Snapshot) -> Result<Branch, OpenError> {
        let Snapshot { metadata, parents, data, local, trie, state, root } = snapshot;
        let pair = CommittedHeads { data: parents.data, metadata };
        let file = pair_file(&repository, &config);
        // A damaged record does no harm while the references match.
        if CommittedHeads::read(&file).ok().flatten() != Some(pair) {
            pair.write(&file)?;
        }
        Ok(Branch::new(config, repository, refs, pair, state, Content { data, local, trie, root }))
    }

    pub(super) fn new(
        config: Config,
        repository: Repository,
        refs: Refs,
        head: CommittedHeads,
        state: State,
        content: Content,
    ) -> Branch {
        let Content { data, local, trie, root } = content;
        let (name, email) = (message::identity(&config.committer_name), message::identity(&config.committer_email));
        Branch {
            names: names(&config),
            identity: format!("{name} <{email}> "),
            config,
            repository,
            released_at: object::bytes_read(),
            refs,
            head,
            state,
            foreign: None,
            root,
            data_commit: head.data,
            data,
            local,
            trie,
            pack: pack::Writer::default(),
            open_below: 0,
            values: std::collections::HashMap::new(),
            local_values: std::collections::HashMap::new(),
            local_changed: false,
            commits: 0,
            changes: 0,
            joins: Vec::new(),
            overhead: 0,
            time: None,
            path: Vec::new(),
            scratch: Vec::new(),
            failed: false,
            is_recorded: true,
            _in_use: ObjectsInUse::default(),
        }
    }

    /// Writes the first metadata commit, or one that replaces a `previous` one, and the data reference if there is none.
    pub(super) fn begin(&mut self, state: &State, data: Option<Oid>, previous: Option<Oid>) -> Result<(), FlushError> {
        let data = if data.is_none() { Data::Moves { from: None } } else { Data::Stays };
        self.begin_on(state, data, previous)
    }

    /// Does the same, with an explicit action for the data reference.
    pub(super) fn begin_on(&mut self, state: &State, data: Data, previous: Option<Oid>) -> Result<(), FlushError> {
        let metadata = self.write_metadata(state, previous);
        self.begin_at(state, metadata, (previous, data))
    }

    /// Makes the first metadata commit, which is in the open pack, the head of the branch. Takes the former target of the metadata
    /// reference.
    pub(super) fn begin_at(
        &mut self,
        state: &State,
        metadata: Oid,
        (previous, data): (Option<Oid>, Data),
    ) -> Result<(), FlushError> {
        let pair = CommittedHeads { data: self.data_commit, metadata };
        self.pack.finish(&self.repository.path().join("objects/pack"))?;
        self.refs.update(&self.names.metadata, metadata, previous)?;
        if let Data::Moves { from } = data {
            self.refs.update(&self.names.data, pair.data, from)?;
        }
        pair.write(&self.pair_file())?;
        self.head = pair;
        self.state = state.clone();
        self.values.clear();
        (self.commits, self.changes) = (0, 0);
        self.overhead = 0;
        Ok(())
    }

    pub(super) fn pair_file(&self) -> PathBuf {
        pair_file(&self.repository, &self.config)
    }
}

/// Returns whether a crash came between the two references: the metadata is the direct successor of the recorded heads, or the
/// first one if none are recorded, and the data reference has not moved.
fn is_half_done(recorded: Option<CommittedHeads>, parents: Parents, data: Option<Oid>) -> bool {
    match recorded {
        Some(recorded) => parents.previous == Some(recorded.metadata) && data == Some(recorded.data),
        None => parents.previous.is_none() && data.is_none(),
    }
}

/// Returns whether this is a clone whose data was fetched before its metadata: the branch was never served here, so the data
/// cannot have been moved back.
fn is_behind_in_clone(
    repository: &Repository,
    recorded: Option<CommittedHeads>,
    parents: Parents,
    data: Option<Oid>,
) -> bool {
    let is_before = |data| Graph::default().is_ancestor(repository, data, parents.data).unwrap_or(false);
    recorded.is_none() && data.is_some_and(is_before)
}

fn names(config: &Config) -> Names {
    Names { data: config.data_reference.clone(), metadata: config.metadata_reference.clone() }
}

fn pair_file(repository: &Repository, config: &Config) -> PathBuf {
    repository.path().join("gitcd").join(&config.name).join("pair")
}
