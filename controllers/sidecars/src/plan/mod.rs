//! What a heaven and an `AutomatedMerge` consist of: pure functions of a manifest.
//!
//! ```text
//! git-pre, git-pre-NAME … ─► gitcd-init ─► gitcd ─► (events-etcd) ─► kube-apiserver ─► the controller
//!  a remote each              the branch    ready     ready            ready
//! ```
//!
//! A step begins when the one before it has ended, or is ready if it is a server. So kube-apiserver never meets a missing store, and the controller no missing
//! kube-apiserver.

mod apiserver;
mod branch;
mod error;
mod etcd;
pub(crate) mod gitcd;
mod place;
mod shown;
mod step;

use trishanku_api::{AutomatedMergeSpec, Gitcd, TrishankuHeavenSpec};

pub use self::apiserver::SERVICE_RANGE;
use self::branch::Branch;
pub use self::error::PlanError;
pub use self::place::{Images, Place, Ports, Trust};
pub use self::shown::{STATUS, show};
pub use self::step::{Content, Environment, Folder, Image, Look, Mount, Probe, Probes, Resources, Run, Step};
use crate::names;

/// Everything that has to run beside a controller, or by itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Folders that steps share.
    pub folders: Vec<Folder>,
    /// What is run, in this order.
    pub steps: Vec<Step>,
    /// Where the programs of the user find the controller's kubeconfig.
    pub kubeconfig: Option<Kubeconfig>,
    /// The Secret with which images are pulled.
    pub pull_secret: Option<String>,
}

/// A kubeconfig for the programs of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubeconfig {
    /// The Secret that has it, as `kubeconfig`.
    pub secret: String,
    /// The file that it is to be.
    pub path: String,
}

/// Which entry points there are: the keys of the `ConfigMap`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryPoints {
    /// A script that prepares the repository instead of gitcd: `git-pre.sh`.
    pub git_pre: bool,
    /// Flags for gitcd that no manifest says: `gitcd.yaml`.
    pub gitcd_config: bool,
}

/// The script's key, and the file's name.
pub const GIT_PRE: &str = "git-pre.sh";
/// The key of gitcd's flags.
pub const GITCD_CONFIG: &str = "gitcd.yaml";

impl EntryPoints {
    /// Those of a `ConfigMap` with these keys.
    pub fn of<'k>(keys: impl IntoIterator<Item = &'k str>) -> Self {
        keys.into_iter().fold(Self::default(), |found, key| Self {
            git_pre: found.git_pre || key == GIT_PRE,
            gitcd_config: found.gitcd_config || key == GITCD_CONFIG,
        })
    }
}

/// The name of the folder with the repository, among a plan's folders.
pub const HOME: &str = "trishanku-home";
/// That of the entry points.
pub const ENTRY_POINTS: &str = "trishanku-entrypoints";
/// That of credentials for remotes.
pub const CREDENTIALS: &str = "trishanku-credentials";

/// The port of a heaven's Git host, which others have to keep away from.
///
/// # Errors
/// [`PlanError`] if it is none.
pub fn host_port(spec: &TrishankuHeavenSpec) -> Result<Option<u16>, PlanError> {
    spec.gitcd.as_ref().map_or(Ok(None), gitcd::host_port)
}

/// A branch, and those that it follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct References {
    /// The reference of the data.
    pub branch: String,
    /// The reference of the metadata.
    pub metadata: String,
    /// The remotes, in their order.
    pub remotes: Vec<RemoteReference>,
}

/// A branch that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteReference {
    /// The remote's name.
    pub name: String,
    /// Its URL or path.
    pub url: String,
    /// The reference of the data there.
    pub branch: String,
}

/// Which branch a manifest is about.
///
/// # Errors
/// [`PlanError`] if it can be none.
pub fn references(gitcd: Option<&Gitcd>) -> Result<References, PlanError> {
    let Branch { data, metadata, remotes, .. } = Branch::of(gitcd.unwrap_or(&Gitcd::default()))?;
    let remote = |remote: branch::Followed| RemoteReference { name: remote.name, url: remote.url, branch: remote.data };
    Ok(References { branch: data, metadata, remotes: remotes.into_iter().map(remote).collect() })
}

/// What runs beside the controller of a heaven.
///
/// # Errors
/// [`PlanError`] with the field, and what to do.
pub fn heaven(
    name: &str,
    spec: &TrishankuHeavenSpec,
    images: &Images,
    place: &Place,
    entry_points: &EntryPoints,
) -> Result<Plan, PlanError> {
    let nothing = Gitcd::default();
    let gitcd = spec.gitcd.as_ref().unwrap_or(&nothing);
    let branch = Branch::of(gitcd)?;
    let map = names::entry_points_of_heaven(name, spec);
    let mut plan = gitcd::plan(name, gitcd, &branch, images, place, entry_points, &map);
    plan.folders.extend(gitcd::host_folder(gitcd));
    plan.steps.push(gitcd::serve(name, gitcd, &branch, images, place, entry_points)?);
    let events = spec.events_etcd.as_ref().and_then(|events| events.local.as_ref());
    if let Some(events) = events {
        plan.folders.push(etcd::folder());
        plan.steps.push(etcd::step(events, images, place));
    }
    let certificates = names::Certificates::of(name, spec);
    apiserver::add(&mut plan, spec, &certificates, images, place, (events.is_some(), gitcd::waits(gitcd)));
    let path = spec.app.as_ref().and_then(|app| app.kubeconfig_mount_path.clone());
    plan.kubeconfig = path.map(|path| Kubeconfig { secret: certificates.controller, path });
    Ok(plan.without_idle_folders())
}

/// What runs in an `AutomatedMerge`.
///
/// # Errors
/// [`PlanError`] with the field, and what to do.
pub fn merge(
    name: &str,
    spec: &AutomatedMergeSpec,
    images: &Images,
    place: &Place,
    entry_points: &EntryPoints,
) -> Result<Plan, PlanError> {
    let nothing = Gitcd::default();
    let gitcd = spec.gitcd.as_ref().unwrap_or(&nothing);
    let branch = Branch::of(gitcd)?;
    let map = names::entry_points_of_merge(name, spec);
    let mut plan = gitcd::plan(&names::merge(name), gitcd, &branch, images, place, entry_points, &map);
    // The merges' author, not gitcd's own name.
    for step in &mut plan.steps {
        gitcd::commits_as(step, &spec.app.committer_name);
    }
    plan.steps.push(gitcd::pull(gitcd, &branch, images, place, entry_points, &spec.app.committer_name)?);
    Ok(plan.without_idle_folders())
}

impl Plan {
    /// Nothing is waited for that nobody reads, such as the Secret for remotes where there are none.
    fn without_idle_folders(mut self) -> Self {
        let steps = &self.steps;
        self.folders
            .retain(|folder| steps.iter().flat_map(|step| &step.mounts).any(|mount| mount.folder == folder.name));
        self
    }
}
