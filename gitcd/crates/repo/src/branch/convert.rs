//! Conversion of a branch that the Go implementation of gitcd wrote.

use std::collections::BTreeMap;
use std::time::SystemTime;

use gitcd_core::keyspace::Placement;
use gitcd_core::lease::MAX_TTL;
use gitcd_merge::form::Form;

use super::super::derive::Progress;
use super::super::entries::Entries;
use super::super::go;
use super::super::graph::Graph;
use super::super::history_link::HistoryLink;
use super::super::key_record::{KeyRecord, Location};
use super::super::load;
use super::super::reader::Reader;
use super::super::refs::Refs;
use super::super::tree::Tree;
use super::super::trie::Trie;
use super::adopt::refuse;
use super::open::{Content, Data};
use super::repository::open_repository;
use super::{AdoptError, Branch, CommittedHeads, Config, OpenError, State};

/// A branch that was converted.
#[derive(Debug)]
pub struct Converted {
    /// The branch.
    pub branch: Branch,
    /// Number of renamed files: their names stood for other keys, or for none.
    pub renamed: usize,
    /// Number of files left out because their keys are ephemeral here.
    pub left_out: usize,
}

impl Branch {
    /// Converts a branch of the Go implementation of gitcd. Data, revisions, versions and leases are kept; everything before is
    /// compacted.
    /// Source of the layout: `docs/design/go-gitcd.md`.
    ///
    /// # Errors
    /// [`AdoptError`]. Nothing was changed.
    pub fn convert(
        config: Config,
        incarnation: String,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Converted, AdoptError> {
        let no_metadata = || AdoptError::NoData { reference: config.metadata_reference.clone() };
        let repository = open_repository(&config.repository)?.ok_or_else(no_metadata)?;
        let refs = Refs::open(repository.path()).map_err(OpenError::from)?;
        let read = |reference| refs.read(reference).map_err(OpenError::from);
        let previous = read(&config.metadata_reference)?.ok_or_else(no_metadata)?;
        let found = read(&config.data_reference)?;
        let go::Branch { revision, data: commit, keys, strange } = go::read(&repository, previous, progress)?;
        refuse(&config, commit, strange)?;
        let mut data = {
            let reader = Reader::new(&repository, &config.data_reference, commit)?;
            reader.tree(b"", reader.commit()?.1)?
        };
        let (mut trie, mut leases, mut path) = (Trie::default(), BTreeMap::new(), Vec::new());
        let (mut renamed, mut left_out) = (Vec::new(), 0);
        for go::Key { path: relative, blob, record } in keys {
            let key = config.keys.absolute(&relative);
            if config.keys.placement(&key) != Placement::Data {
                data.remove(&relative);
                left_out += 1;
                continue;
            }
            load::join(&relative, &mut path);
            if path != relative {
                data.remove(&relative);
                renamed.push((path.clone(), blob));
            }
            if record.lease != 0 {
                // The granted time to live is not stored, and leases never expired.
                leases.insert(record.lease, MAX_TTL);
            }
            // Values are stored as clients put them.
            trie.put(KeyRecord { key: key.into(), record, form: Form::Raw, home: Location::Data });
        }
        let other_names = renamed.len();
        for (path, blob) in renamed {
            data.put(&path, blob);
        }
        let follows = match found {
            Some(found) => Graph::default().is_ancestor(&repository, found, commit).unwrap_or(false),
            None => true,
        };
        let leases = leases.into_iter().collect();
        let state = State { revision, compact_revision: revision, incarnation, leases };
        let content = Content { data, local: Tree::default(), trie, root: Entries::default() };
        let pair = CommittedHeads { data: commit, metadata: git2::Oid::ZERO_SHA1 };
        let mut branch = Branch::new(config, repository, refs, pair, State::default(), content);
        if other_names + left_out > 0 {
            let root = branch.data.write(&mut branch.pack);
            let message =
                format!("convert the names of {other_names} files, and leave out {left_out} ephemeral ones\n");
            branch.data_commit = branch.write_commit(root, &[commit], SystemTime::now(), &message);
        }
        branch.joins =
            vec![HistoryLink::Adopted { data: branch.data_commit }, HistoryLink::Converted { metadata: previous }];
        // Later commits of others stay on the reference, and are merged when the branch is served.
        let moves = follows && found != Some(branch.data_commit);
        let data = if moves { Data::Moves { from: found } } else { Data::Stays };
        branch.begin_on(&state, data, Some(previous))?;
        Ok(Converted { branch, renamed: other_names, left_out })
    }
}
