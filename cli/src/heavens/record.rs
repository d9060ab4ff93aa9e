//! What a running heaven leaves in the state, for those who look at it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A heaven or a merge that runs, or ran last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeavenRecord {
    /// What its components' names begin with: the object's name, with `-automerge` behind it for a merge.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The reference of its branch.
    pub branch: String,
    /// The reference of its metadata, unless it follows from that of the branch.
    #[serde(default)]
    pub metadata: Option<String>,
    /// The repository with the branch.
    pub repository: PathBuf,
    /// Where its gitcd tells how it is; a merge does not.
    pub gitcd_port: Option<u16>,
    /// The administrator's kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Which branches it follows.
    pub remotes: Vec<RemoteRecord>,
}

/// What a record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A `TrishankuHeaven`.
    Heaven,
    /// An `AutomatedMerge`.
    Merge,
}

/// A branch that is followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteRecord {
    /// The remote's name.
    pub name: String,
    /// The reference there.
    pub branch: String,
    /// The repository, if it is a folder of this machine.
    pub folder: Option<PathBuf>,
}
