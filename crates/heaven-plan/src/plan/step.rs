//! A step of a plan: one program.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ResourceRequirements;
use trishanku_api::PullPolicy;

use super::{Place, STORE};

/// A program with everything that it needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its published name.
    pub name: String,
    /// Its image.
    pub image: Image,
    /// The program; a path or a name.
    pub program: String,
    /// Its arguments, without secrets.
    pub arguments: Vec<String>,
    /// Its environment, without secrets.
    pub environment: Environment,
    /// The folders of the plan that it sees.
    pub mounts: Vec<Mount>,
    /// Whether it runs to completion or serves.
    pub run: Run,
    /// Its resources.
    pub resources: Resources,
    /// Whether it may write to its root file system, since it is a user's image.
    pub writable_root: bool,
}

/// Variables in a stable order.
pub type Environment = BTreeMap<String, String>;

/// An image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its reference.
    pub name: String,
    /// The pull policy.
    pub pull: Option<PullPolicy>,
}

/// How a step runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run {
    /// To completion, which must succeed before the next step.
    Once,
    /// As a server. The next step starts when it is ready.
    Server(Probes),
    /// As a background process, for which no step waits.
    Alone {
        /// Liveness probe, if there is one.
        alive: Option<Probe>,
    },
}

/// The probes of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probes {
    /// Its named port for others.
    pub port: Option<(&'static str, u16)>,
    /// Startup probe.
    pub started: Probe,
    /// Liveness probe; a failure restarts it.
    pub alive: Option<Probe>,
    /// Readiness probe.
    pub ready: Option<Probe>,
}

/// A periodic probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The check.
    pub look: Look,
    /// The interval.
    pub every: Duration,
    /// Time limit of one check.
    pub patience: Duration,
    /// How many failures in a row make it fail.
    pub failures: u16,
}

/// The check of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// A command, successful with exit code 0.
    Run(Vec<String>),
    /// A request over TLS at the server's port, successful with status 200.
    Https {
        /// The path.
        path: &'static str,
    },
}

/// A folder that steps share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Its name in the plan.
    pub name: String,
    /// Its content.
    pub content: Content,
}

/// The content of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// An empty folder that does not outlive the pod.
    Empty {
        /// Its size limit.
        size_limit: Option<String>,
    },
    /// An empty folder in memory, for private keys.
    Memory,
    /// A volume claim, which outlives the pod.
    Kept {
        /// The claim.
        claim: String,
    },
    /// A claim for each replica, which outlives its pod. The workload adds it to the pods, instead of an empty folder.
    KeptByReplica,
    /// The values of a Secret as files.
    Secret {
        /// The Secret.
        name: String,
        /// Keys and file names; if empty, all keys under their own names.
        items: Vec<(&'static str, &'static str)>,
    },
    /// The values of a `ConfigMap` as executable files.
    EntryPoints {
        /// The `ConfigMap`.
        name: String,
    },
}

/// The mount of a folder in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The folder's name in the plan.
    pub folder: String,
    /// The mount path.
    pub path: String,
    /// Whether it is writable.
    pub writable: bool,
}

/// Resource requests and limits, as in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// The requests.
    pub requests: BTreeMap<String, String>,
    /// The limits.
    pub limits: BTreeMap<String, String>,
}

impl Resources {
    pub(super) fn of(given: Option<&ResourceRequirements>) -> Self {
        let given = given.cloned().unwrap_or_default();
        let plain = |quantities: Option<BTreeMap<String, _>>| {
            let quantities = quantities.unwrap_or_default().into_iter();
            quantities
                .map(|(name, k8s_openapi::apimachinery::pkg::api::resource::Quantity(quantity))| (name, quantity))
                .collect()
        };
        Self { requests: plain(given.requests), limits: plain(given.limits) }
    }
}

impl Mount {
    /// The folder of the store's certificates, if the plan creates it.
    pub(super) fn store(place: &Place) -> Option<Self> {
        place.trust.created().map(|path| Self::read(STORE, path))
    }

    pub(super) fn read(folder: &str, path: impl Into<String>) -> Self {
        Self { folder: folder.to_owned(), path: path.into(), writable: false }
    }

    pub(super) fn write(folder: &str, path: impl Into<String>) -> Self {
        Self { folder: folder.to_owned(), path: path.into(), writable: true }
    }
}
