//! Verification of a branch: metadata against data, values against their stored forms, and key records for consistency.
//! `git fsck` checks the objects themselves.

use std::collections::HashSet;

use git2::{Oid, Repository};
use gitcd_merge::form;

use super::branch::Config;
use super::key_record::{KeyRecord, Location};
use super::load::{Names, Snapshot, place, value};
use super::reader::{LoadError, Reader};
use super::state::State;

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// The store's revision.
    pub revision: i64,
    /// Number of keys in the data tree.
    pub keys: usize,
    /// Number of keys stored with the metadata.
    pub local_keys: usize,
    /// Bytes of all values, as they were put.
    pub bytes: u64,
    /// The problems, each with the key or file; at most [`MOST`].
    pub findings: Vec<String>,
    /// Number of further problems.
    pub more: usize,
}

/// Limit of listed problems.
pub const MOST: usize = 100;

impl Verified {
    /// Returns whether there are no problems.
    pub fn is_good(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, what: String) {
        if self.findings.len() < MOST {
            self.findings.push(what);
        } else {
            self.more += 1;
        }
    }
}

/// Verifies every key and value of a branch as of a metadata commit. Calls `progress` with the number of keys checked and of all
/// keys.
///
/// # Errors
/// [`LoadError`] if the metadata cannot be read at all; problems of single keys are findings.
pub fn verify(
    repository: &Repository,
    config: &Config,
    metadata: Oid,
    mut progress: impl FnMut(usize, usize),
) -> Result<Verified, LoadError> {
    let names = Names { data: config.data_reference.clone(), metadata: config.metadata_reference.clone() };
    let snapshot = Snapshot::read(repository, &names, metadata)?;
    let data = Reader::new(repository, &names.data, snapshot.parents.data)?;
    let local = Reader::new(repository, &names.metadata, metadata)?;
    let mut verified = Verified { revision: snapshot.state.revision, ..Verified::default() };
    let (mut files, mut done, mut path) = ([HashSet::new(), HashSet::new()], 0, Vec::new());
    snapshot.trie.each(|line| {
        let (reader, tree, at) = match line.home {
            Location::Data => (&data, &snapshot.data, 0),
            Location::Local => (&local, &snapshot.local, 1),
        };
        if at == 0 {
            verified.keys += 1;
        } else {
            verified.local_keys += 1;
        }
        record(line, &snapshot.state, &mut verified);
        if place(&config.keys, line, &mut path) {
            files[at].insert(path.clone());
        }
        match value(reader, tree, &config.keys, line, &mut path) {
            Ok(value) => {
                verified.bytes += value.len() as u64;
                let (form, blob) = form::encode(&value);
                if form::decode(form, &blob).ok().as_deref() != Some(&value[..]) {
                    verified.find(format!("{}: its value is not in its canonical form", shown(line)));
                }
            }
            Err(error) => verified.find(error.to_string()),
        }
        done += 1;
        progress(done, snapshot.trie.len());
    });
    for (tree, files, reference) in
        [(&snapshot.data, &files[0], &names.data), (&snapshot.local, &files[1], &names.metadata)]
    {
        tree.each(|path, _| {
            if !files.contains(path.strip_suffix(b"/%value").unwrap_or(path)) && !files.contains(path) {
                verified.find(format!(
                    "{reference}: the metadata has no key for the file {:?}",
                    String::from_utf8_lossy(path)
                ));
            }
        });
    }
    Ok(verified)
}

fn shown(line: &KeyRecord) -> String {
    line.key.escape_ascii().to_string()
}

/// Checks the numbers of a key against each other and against the store's.
fn record(line: &KeyRecord, state: &State, verified: &mut Verified) {
    let record = line.record;
    if record.create_revision > record.mod_revision || record.mod_revision > state.revision {
        let (create, last) = (record.create_revision, record.mod_revision);
        let store = state.revision;
        verified
            .find(format!("{}: created at {create}, changed last at {last}, and the store is at {store}", shown(line)));
    }
    if record.lease != 0 && !state.leases.iter().any(|(id, _)| *id == record.lease) {
        verified.find(format!("{}: its lease {:x} is not among the leases", shown(line), record.lease));
    }
}
