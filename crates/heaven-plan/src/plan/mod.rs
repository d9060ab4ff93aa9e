//! The parts of a heaven and of an `AutomatedMerge`: pure functions of a manifest.
//!
//! ```text
//! git-pre, git-pre-NAME … ─► gitcd-init ─► gitcd ─► (events-etcd) ─► kube-apiserver ─► the controller
//!  a remote each              the branch    ready     ready            ready
//! ```
//!
//! A step starts when the one before it has completed, or is ready if it is a server. So kube-apiserver always finds its
//! store, and the controller its kube-apiserver.

mod apiserver;
mod branch;
mod error;
mod etcd;
pub(crate) mod gitcd;
mod place;
mod shown;
mod step;

use trishanku_api::{AutomatedMergeSpec, Gitcd, TrishankuHeavenSpec};

pub use self::apiserver::{ENCRYPTION, SERVICE_RANGE};
use self::branch::Branch;
pub use self::error::PlanError;
pub use self::place::{Images, Place, Ports, Trust};
pub use self::shown::{STATUS, show};
pub use self::step::{Content, Environment, Folder, Image, Look, Mount, Probe, Probes, Resources, Run, Step};
use crate::names;

/// Everything that runs beside a controller, or in a merge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Folders that steps share.
    pub folders: Vec<Folder>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The controller's kubeconfig, for the user's containers.
    pub kubeconfig: Option<Kubeconfig>,
    /// The image pull Secret.
    pub pull_secret: Option<String>,
}

/// A kubeconfig for the user's containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubeconfig {
    /// The Secret, with the key `kubeconfig`.
    pub secret: String,
    /// The path of the file.
    pub path: String,
}

/// The available entry points: the keys of the `ConfigMap`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryPoints {
    /// `git-pre.sh`: a script that prepares the repository instead of gitcd.
    pub git_pre: bool,
    /// `gitcd.yaml`: default flags of gitcd.
    pub gitcd_config: bool,
}

/// Key and file name of the script.
pub const GIT_PRE: &str = "git-pre.sh";
/// Key of gitcd's flags.
pub const GITCD_CONFIG: &str = "gitcd.yaml";

impl EntryPoints {
    /// Reads the keys of a `ConfigMap`.
    pub fn of<'k>(keys: impl IntoIterator<Item = &'k str>) -> Self {
        keys.into_iter().fold(Self::default(), |found, key| Self {
            git_pre: found.git_pre || key == GIT_PRE,
            gitcd_config: found.gitcd_config || key == GITCD_CONFIG,
        })
    }
}

/// The name of the folder with the repository, among a plan's folders.
pub const HOME: &str = "trishanku-home";
/// The name of the folder with the entry points.
pub const ENTRY_POINTS: &str = "trishanku-entrypoints";
/// The name of the folder with the certificates of [`Trust::Created`].
pub const STORE: &str = "trishanku-store";
/// The name of the folder with remote credentials.
pub const CREDENTIALS: &str = "trishanku-credentials";

/// The port of a heaven's Git host, which other containers must not use.
///
/// # Errors
/// [`PlanError`] if it is not a valid port.
pub fn host_port(spec: &TrishankuHeavenSpec) -> Result<Option<u16>, PlanError> {
    spec.gitcd.as_ref().map_or(Ok(None), gitcd::host_port)
}

/// The branch of a manifest, and those from which it pulls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct References {
    /// The reference of the data.
    pub branch: String,
    /// The reference of the metadata.
    pub metadata: String,
    /// The remotes, in order.
    pub remotes: Vec<RemoteReference>,
}

/// A remote branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteReference {
    /// The remote's name.
    pub name: String,
    /// Its URL or path.
    pub url: String,
    /// The reference of the data in the remote.
    pub branch: String,
}

/// Returns the branches of a manifest.
///
/// # Errors
/// [`PlanError`] if a name is invalid.
pub fn references(gitcd: Option<&Gitcd>) -> Result<References, PlanError> {
    let Branch { data, metadata, remotes, .. } = Branch::of(gitcd.unwrap_or(&Gitcd::default()))?;
    let remote = |remote: branch::Followed| RemoteReference { name: remote.name, url: remote.url, branch: remote.data };
    Ok(References { branch: data, metadata, remotes: remotes.into_iter().map(remote).collect() })
}

/// Returns the plan of a heaven.
///
/// # Errors
/// [`PlanError`] with the field and the solution.
pub fn heaven(
    name: &str,
    spec: &TrishankuHeavenSpec,
    images: &Images,
    place: &Place,
    entry_points: &EntryPoints,
) -> Result<Plan, PlanError> {
    let nothing = Gitcd::default();
    let gitcd = spec.gitcd.as_ref().unwrap_or(&nothing);
    refuse_shared_namespaces(spec)?;
    let branch = Branch::of(gitcd)?;
    let map = names::entry_points_of_heaven(name, spec);
    let mut plan = gitcd::plan(name, gitcd, &branch, images, place, entry_points, &map);
    gitcd::create_certificates(&mut plan, place);
    plan.folders.extend(gitcd::host_folders(gitcd));
    plan.steps.push(gitcd::serve(name, gitcd, &branch, images, place, entry_points)?);
    let certificates = names::Certificates::of(name, spec);
    gitcd::check_host_certificate(gitcd, &certificates)?;
    let events = spec.events_etcd.as_ref().and_then(|events| events.local.as_ref());
    if let Some(events) = events {
        plan.folders.push(etcd::folder());
        plan.steps.push(etcd::step(events, images, place));
    }
    apiserver::add(&mut plan, spec, &certificates, images, place, (events.is_some(), gitcd::waits(gitcd)));
    let path = spec.app.as_ref().and_then(|app| app.kubeconfig_mount_path.clone());
    plan.kubeconfig = path.map(|path| Kubeconfig { secret: certificates.controller, path });
    Ok(plan.without_idle_folders())
}

/// Refuses a pod whose containers see the processes of others: through `/proc`, they would read the keys of the store.
fn refuse_shared_namespaces(spec: &TrishankuHeavenSpec) -> Result<(), PlanError> {
    let Some(app) = spec.app.as_ref().filter(|app| app.allow_shared_namespaces != Some(true)) else { return Ok(()) };
    let shared = ["hostNetwork", "hostPID", "shareProcessNamespace"];
    match shared.into_iter().find(|field| app.pod_template["spec"][field] == true) {
        None => Ok(()),
        Some(field) => Err(PlanError::value(
            format!("app.podTemplate.spec.{field}"),
            "true",
            "is not allowed, because the containers would no longer be isolated from one another or from the node: \
             remove it, or set app.allowSharedNamespaces",
        )),
    }
}

/// Returns the plan of an `AutomatedMerge`.
///
/// # Errors
/// [`PlanError`] with the field and the solution.
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
    // Merges are committed under the name in the manifest, not gitcd's own.
    for step in &mut plan.steps {
        gitcd::commits_as(step, &spec.app.committer_name);
    }
    plan.steps.push(gitcd::pull(gitcd, &branch, images, place, entry_points, &spec.app.committer_name)?);
    Ok(plan.without_idle_folders())
}

impl Plan {
    /// Drops unused folders, so that pods do not wait for their Secrets, for example for credentials without remotes.
    fn without_idle_folders(mut self) -> Self {
        let steps = &self.steps;
        self.folders
            .retain(|folder| steps.iter().flat_map(|step| &step.mounts).any(|mount| mount.folder == folder.name));
        self
    }
}
