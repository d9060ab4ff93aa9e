//! What the measurement of growth consists of, and its amount of load.

use clap::ValueEnum;
use serde::Serialize;

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Part {
    /// The number of keys
    Keys,
    /// The length of a list
    List,
    /// The number of watchers
    Watchers,
    /// The number of branches that one merge follows
    Branches,
}

impl Part {
    /// All, in the order in which they run.
    pub(crate) const ALL: [Self; 4] = [Self::Keys, Self::List, Self::Watchers, Self::Branches];

    /// The name for `--only`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::List => "list",
            Self::Watchers => "watchers",
            Self::Branches => "branches",
        }
    }
}

/// The amount of load.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    /// Numbers of keys, ascending.
    pub(crate) keys: Vec<u64>,
    /// Keys of the list.
    pub(crate) listed: u64,
    /// Numbers of watchers, ascending.
    pub(crate) watchers: Vec<usize>,
    /// Numbers of branches.
    pub(crate) branches: Vec<usize>,
    /// Writes a second to all branches together.
    pub(crate) branch_rate: u64,
    /// Seconds of each load.
    pub(crate) seconds: u64,
}
