//! One program that is run.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ResourceRequirements;
use trishanku_api::PullPolicy;

/// A program, and all that it needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its published name.
    pub name: String,
    /// The image that has it.
    pub image: Image,
    /// The program; a path or a name.
    pub program: String,
    /// Its arguments. No secret is among them.
    pub arguments: Vec<String>,
    /// Its environment. No secret is in it.
    pub environment: Environment,
    /// What of the plan's folders it sees, and where.
    pub mounts: Vec<Mount>,
    /// Whether it ends, or goes on.
    pub run: Run,
    /// What it asks for and may use.
    pub resources: Resources,
    /// Whether its image is somebody else's, who may want to write anywhere in it.
    pub writable_root: bool,
}

/// Variables in a stable order.
pub type Environment = BTreeMap<String, String>;

/// An image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its reference.
    pub name: String,
    /// When it is pulled.
    pub pull: Option<PullPolicy>,
}

/// How long something runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run {
    /// To its end, which must be a good one, before the next step.
    Once,
    /// For ever. The next step begins when it is ready.
    Server(Probes),
    /// For ever, and nobody waits for it.
    Alone {
        /// How to learn that it lives, if there is a way.
        alive: Option<Probe>,
    },
}

/// How to learn how a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probes {
    /// The port that it listens on for others, with its name.
    pub port: Option<(&'static str, u16)>,
    /// Whether it has begun to serve.
    pub started: Probe,
    /// Whether it still can; if not, it is started anew.
    pub alive: Option<Probe>,
    /// Whether it does.
    pub ready: Option<Probe>,
}

/// A look that is taken again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What is looked at.
    pub look: Look,
    /// How often.
    pub every: Duration,
    /// How long one look may take.
    pub patience: Duration,
    /// How many in a row have to fail.
    pub failures: u16,
}

/// How a server is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// By a program beside it, which ends well if all is well.
    Run(Vec<String>),
    /// By a request over TLS at its port, which is answered with 200.
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
    /// What is in it.
    pub content: Content,
}

/// What is in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing at first; it goes with the steps.
    Empty {
        /// The most that it may take.
        size_limit: Option<String>,
    },
    /// What was left there; it outlives the steps.
    Kept {
        /// The claim that it is on.
        claim: String,
    },
    /// The values of a Secret as files.
    Secret {
        /// The Secret.
        name: String,
        /// Keys and the files that they become; all under their own names if there are none.
        items: Vec<(&'static str, &'static str)>,
    },
    /// The values of a `ConfigMap` as files that can be run.
    EntryPoints {
        /// The `ConfigMap`.
        name: String,
    },
}

/// Where a step sees a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The folder's name in the plan.
    pub folder: String,
    /// Where it is.
    pub path: String,
    /// Whether it is written to.
    pub writable: bool,
}

/// What a program asks for and may use, as in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// What is set aside for it.
    pub requests: BTreeMap<String, String>,
    /// What it may use at most.
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
    pub(super) fn read(folder: &str, path: impl Into<String>) -> Self {
        Self { folder: folder.to_owned(), path: path.into(), writable: false }
    }

    pub(super) fn write(folder: &str, path: impl Into<String>) -> Self {
        Self { folder: folder.to_owned(), path: path.into(), writable: true }
    }
}
