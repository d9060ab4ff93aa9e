//! The record of a heaven in the state file, for other commands.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How the branches of a headless cluster are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// Through one repository, in which a merge combines all branches.
    #[default]
    Star,
    /// Each heaven pulls from each other one, without a centre.
    Mesh,
}

impl Topology {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Star => "star",
            Self::Mesh => "mesh",
        }
    }
}

/// A heaven or merge of the current or last run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeavenRecord {
    /// The prefix of its components' names: the object's name, with `-automerge` appended for a merge.
    pub name: String,
    /// Whether it is a heaven or a merge.
    pub kind: Kind,
    /// The reference of its branch.
    pub branch: String,
    /// The reference of its metadata, unless that follows from the branch.
    #[serde(default)]
    pub metadata: Option<String>,
    /// The repository with the branch.
    pub repository: PathBuf,
    /// The port with the status of its gitcd; a merge has none.
    pub gitcd_port: Option<u16>,
    /// The administrator's kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// The branches from which it pulls.
    pub remotes: Vec<RemoteRecord>,
}

/// The kind of a recorded object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A `TrishankuHeaven`.
    Heaven,
    /// An `AutomatedMerge`.
    Merge,
}

/// A branch from which it pulls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteRecord {
    /// The remote's name.
    pub name: String,
    /// The reference in the remote.
    pub branch: String,
    /// The repository, if it is a folder on this machine.
    pub folder: Option<PathBuf>,
}
