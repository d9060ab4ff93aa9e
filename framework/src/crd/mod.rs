//! Custom resource definitions: printed, or applied to a cluster, from the types that derive them.
//!
//! A kind is declared once, by kube's derives: `#[kube(…)]` has columns, short names, categories and subresources,
//! `#[x_kube(validation = …)]` has rules in CEL. The apiserver checks the rules, so an invalid object is rejected when it is
//! written.
//!
//! ```
//! use kube::{CustomResource, KubeSchema};
//! use serde::{Deserialize, Serialize};
//! use trishanku_framework::crd::Definitions;
//!
//! #[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, Serialize)]
//! #[kube(
//!     group = "example.org", version = "v1", kind = "Tank", namespaced, shortname = "tk", category = "plant",
//!     printcolumn(name = "Level", type_ = "integer", json_path = ".spec.level")
//! )]
//! #[x_kube(validation = Rule::new("self.level <= self.capacity").message("the level is above the rim"))]
//! struct TankSpec {
//!     #[schemars(range(min = 1))]
//!     #[x_kube(validation = Rule::new("self == oldSelf").message("a tank does not grow"))]
//!     capacity: u32,
//!     level: u32,
//! }
//!
//! let yaml = Definitions::of::<Tank>().to_string();
//! assert!(yaml.contains("rule: self.level <= self.capacity") && yaml.contains("name: tanks.example.org"));
//! ```
//!
//! **Who applies them.** Either users print the definitions ([`Definitions::print`]; displayed, they are YAML) and apply them
//! before the controller starts, which then needs no permissions for definitions. Or a program that has the permissions calls
//! [`Definitions::apply`].
//!
//! Number formats that only Rust has (`uint32`) are left out: the apiserver would warn about them, and check nothing.
//!
//! **Checks.** A change that would lose stored data is rejected: see [`DefinitionError`]. The fields of a version are not
//! checked: a field that its schema lacks is dropped from an object by the next write, as always.
//!
//! **Versions.** A new storage version is applied beside the former one; [`Definitions::migrate`] then rewrites the stored
//! objects, and the former version can be left out.

mod formats;
mod loss;
mod migration;

use std::fmt;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, CustomResourceExt, ResourceExt};

pub use self::loss::Loss;
pub use self::migration::MigrationError;

const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Attempts in case of conflicts: with replicas that start at the same time, or with the server, which writes the status.
const TRIES: usize = 10;

/// Why a definition is not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// Stored data would be lost; nothing was changed.
    #[error("{name} was not changed: {loss}")]
    Loses {
        /// The definition.
        name: String,
        /// What would be lost.
        loss: Loss,
    },
    /// The request failed.
    #[error("cannot apply {name}")]
    Refused {
        /// The definition.
        name: String,
        /// The error of the request.
        source: Box<kube::Error>,
    },
    /// It was applied, and is not served: its names belong to another definition, or the apiserver takes too long.
    #[error("{name} is not served after {waited:?}: {why}")]
    NotServed {
        /// The definition.
        name: String,
        /// How long [`Definitions::apply`] waited.
        waited: Duration,
        /// What the apiserver reports.
        why: String,
    },
}

/// The definitions that a program needs. Displayed, they are YAML for `kubectl apply --server-side -f -`.
#[derive(Clone, Debug)]
pub struct Definitions {
    all: Vec<CustomResourceDefinition>,
    patience: Duration,
}

impl Default for Definitions {
    /// Returns no definitions.
    fn default() -> Self {
        Self { all: Vec::new(), patience: PATIENCE }
    }
}

impl Definitions {
    /// Returns the definition of `K`.
    pub fn of<K: CustomResourceExt>() -> Self {
        Self::default().and::<K>()
    }

    /// Adds the definition of `K`.
    #[must_use]
    pub fn and<K: CustomResourceExt>(self) -> Self {
        self.and_this(K::crd())
    }

    /// Adds a definition. [`merge_crds`](kube::core::crd::merge_crds) combines several versions of a kind.
    #[must_use]
    pub fn and_this(mut self, definition: CustomResourceDefinition) -> Self {
        self.all.push(formats::known(definition));
        self
    }

    /// Sets how long each may take to be served; by default 30 seconds.
    #[must_use]
    pub fn within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Prints the definitions, for `kubectl apply --server-side -f -`. A closed pipe (`| head`) is not an error.
    ///
    /// # Errors
    /// Standard output cannot be written to.
    pub fn print(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match write!(out, "{self}").and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            printed => printed,
        }
    }

    /// Applies the definitions in the name of `manager` (server-side apply), and waits until the apiserver serves them.
    /// Unchanged ones stay.
    ///
    /// From then on, objects can be written. The first reads may get 429 with a delay of a second, while the apiserver fills
    /// its cache; controllers retry them.
    ///
    /// It needs permission to `get`, `create` and `patch` definitions.
    ///
    /// # Errors
    /// [`DefinitionError`] of the first definition that is not applied, or not served; those before it are applied.
    pub async fn apply(&self, client: &Client, manager: &str) -> Result<(), DefinitionError> {
        let api = Api::all(client.clone());
        for wanted in &self.all {
            put(&api, wanted, manager).await?;
        }
        for wanted in &self.all {
            self.until_served(&api, &wanted.name_any()).await?;
        }
        Ok(())
    }

    async fn until_served(&self, api: &Api<CustomResourceDefinition>, name: &str) -> Result<(), DefinitionError> {
        let began = Instant::now();
        loop {
            let live = api.get(name).await.map_err(|error| refused(name, error))?;
            let Some(why) = unserved(&live) else { return Ok(()) };
            if began.elapsed() >= self.patience {
                return Err(DefinitionError::NotServed { name: name.to_owned(), waited: self.patience, why });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Encodes a definition as YAML, with each string on one line.
fn text(definition: &CustomResourceDefinition) -> Result<String, fmt::Error> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let mut text = String::new();
    serde_saphyr::to_fmt_writer_with_options(&mut text, definition, options).map_err(|_| fmt::Error)?;
    Ok(text)
}

impl fmt::Display for Definitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, definition) in self.all.iter().enumerate() {
            let separator = if index == 0 { "" } else { "---\n" };
            write!(f, "{separator}{}", text(definition)?)?;
        }
        Ok(())
    }
}

async fn put(
    api: &Api<CustomResourceDefinition>,
    wanted: &CustomResourceDefinition,
    manager: &str,
) -> Result<(), DefinitionError> {
    let name = wanted.name_any();
    let mut tries = 0;
    loop {
        tries += 1;
        let live = api.get_opt(&name).await.map_err(|error| refused(&name, error))?;
        if let Some(loss) = live.as_ref().and_then(|live| loss::between(live, wanted)) {
            return Err(DefinitionError::Loses { name, loss });
        }
        let mut next = wanted.clone();
        // The write must not replace another version than the one checked.
        next.metadata.resource_version = live.and_then(|live| live.metadata.resource_version);
        match api.patch(&name, &PatchParams::apply(manager).force(), &Patch::Apply(&next)).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() && tries < TRIES => {}
            Err(error) => return Err(refused(&name, error)),
        }
    }
}

fn refused(name: &str, error: kube::Error) -> DefinitionError {
    DefinitionError::Refused { name: name.to_owned(), source: Box::new(error) }
}

/// Returns why a definition is not served under its current names.
fn unserved(live: &CustomResourceDefinition) -> Option<String> {
    let status = live.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let established = conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True");
    // A definition that was served before stays established.
    let named = status.and_then(|status| status.accepted_names.as_ref()) == Some(&live.spec.names);
    if established && named {
        return None;
    }
    let problems = conditions.iter().filter(|condition| condition.status == "False");
    let problems: Vec<_> = problems.filter_map(|condition| condition.message.clone()).collect();
    Some(if problems.is_empty() { "the apiserver reports no reason".to_owned() } else { problems.join("; ") })
}
