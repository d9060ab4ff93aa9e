//! The branch that the examples measure.

use std::path::Path;
use std::time::SystemTime;

use gitcd::git::branch::{Change, Config, Revisions};
use gitcd::keyspace::KeySpace;

/// The configuration of a branch in a folder.
pub(crate) fn config(folder: &Path) -> Config {
    Config {
        repository: folder.join("store.git"),
        name: "default".into(),
        data_reference: "refs/heads/main".into(),
        metadata_reference: "refs/gitcd/metadata/main".into(),
        keys: KeySpace::new("/registry", [""; 0]),
        committer_name: "gitcd".into(),
        committer_email: "gitcd@localhost".into(),
    }
}

/// One revision with these changes, written by a kube-apiserver.
pub(crate) fn one(revision: i64, changes: Vec<Change>) -> Revisions {
    let clients = vec!["kube-apiserver/v1.36.3".into()];
    Revisions { first: revision, last: revision, time: SystemTime::now(), clients, changes }
}
