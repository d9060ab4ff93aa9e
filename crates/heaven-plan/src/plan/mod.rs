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
mod replicas;
mod shown;
mod step;

use trishanku_api::{AutomatedMergeSpec, Gitcd};

pub use self::apiserver::{ENCRYPTION, SERVICE_RANGE};
use self::branch::Branch;
pub use self::error::PlanError;
pub use self::place::{Images, Place, Ports, Trust};
pub use self::replicas::REPLICA;
pub use self::shown::{STATUS, show};
pub use self::step::{Content, Environment, Folder, Image, Look, Mount, Probe, Probes, Resources, Run, Step};
use crate::{HeavenParts, names};

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
    /// The field of the pod that replaces [`REPLICA`] in arguments and variables.
    pub replica: Option<&'static str>,
}

/// A kubeconfig for the user's containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubeconfig {
    /// The Secret, with the key `kubeconfig`.
    pub secret: String,
    /// The path of the file, which never changes; or of its folder.
    pub path: String,
    /// Whether it is in a folder of its own, where it follows renewals, and `KUBECONFIG` names it.
    pub has_folder: bool,
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
pub fn host_port(heaven: &HeavenParts<'_>) -> Result<Option<u16>, PlanError> {
    heaven.gitcd.map_or(Ok(None), gitcd::host_port)
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
    parts: &HeavenParts<'_>,
    images: &Images,
    place: &Place,
    entry_points: &EntryPoints,
) -> Result<Plan, PlanError> {
    let nothing = Gitcd::default();
    let gitcd = parts.gitcd.unwrap_or(&nothing);
    refuse_shared_namespaces(parts)?;
    let branch = Branch::of(gitcd)?;
    replicas::check(gitcd, &branch, place)?;
    let mut plan = gitcd::plan(parts.name, gitcd, &branch, images, place, entry_points, &parts.entry_points);
    gitcd::create_certificates(&mut plan, place);
    plan.folders.extend(gitcd::host_folders(gitcd));
    plan.steps.push(gitcd::serve(parts.name, gitcd, &branch, images, place, entry_points)?);
    gitcd::check_host_certificate(gitcd, &parts.certificates)?;
    if let Some(events) = parts.events_etcd {
        plan.folders.push(etcd::folder());
        plan.steps.push(etcd::step(events, images, place));
    }
    apiserver::add(&mut plan, parts, images, place, gitcd::waits(gitcd));
    let has_folder = parts.kubeconfig_path.is_none();
    plan.kubeconfig = parts.kubeconfig_path.or(parts.kubeconfig_folder).map(|path| {
        let secret = parts.certificates.controller.clone();
        Kubeconfig { secret, path: path.to_owned(), has_folder }
    });
    plan.replica = place.replica;
    Ok(plan.without_idle_folders())
}

/// Refuses a pod whose containers see the processes of others: through `/proc`, they would read the keys of the store.
fn refuse_shared_namespaces(parts: &HeavenParts<'_>) -> Result<(), PlanError> {
    let Some(template) = parts.pod_template.filter(|_| !parts.allow_shared_namespaces) else { return Ok(()) };
    let shared = ["hostNetwork", "hostPID", "shareProcessNamespace"];
    match shared.into_iter().find(|field| template["spec"][field] == true) {
        None => Ok(()),
        Some(field) => Err(PlanError::value(
            format!("{}.spec.{field}", parts.pod_template_field),
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
