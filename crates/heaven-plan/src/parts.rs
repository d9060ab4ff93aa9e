//! What a heaven consists of, whatever kind declares it.

use serde_json::Value;
use trishanku_api::{ApiServer, Gitcd, LocalEtcd, Skip, TrishankuHeavenSpec};

use crate::names;

/// The parts of a manifest from which [`plan::heaven`](crate::plan::heaven) builds a plan.
///
/// A `TrishankuHeaven` has [all of them](Self::of_spec). Another kind sets the parts that it has, and keeps the defaults of
/// [`new`](Self::new) for the others:
///
/// ```
/// use serde_json::json;
/// use trishanku_api::Gitcd;
/// use trishanku_heaven_plan::HeavenParts;
///
/// let (gitcd, template) = (Gitcd::default(), json!({"spec": {"containers": [{"name": "app", "image": "app:1"}]}}));
/// let parts = HeavenParts { gitcd: Some(&gitcd), pod_template: Some(&template), ..HeavenParts::new("web") };
/// assert_eq!(parts.certificates.admin, "web-admin");
/// ```
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are fields of manifests of their own, not states")]
pub struct HeavenParts<'s> {
    /// The name of the object. Default names of other objects begin with it.
    pub name: &'s str,
    /// The Secrets with certificates.
    pub certificates: names::Certificates,
    /// The user of the controller's certificate; without one, no such certificate is issued.
    pub user: Option<User<'s>>,
    /// The `ConfigMap` with the entry points.
    pub entry_points: String,
    /// The branch, and how it follows its remotes.
    pub gitcd: Option<&'s Gitcd>,
    /// An etcd of its own for events.
    pub events_etcd: Option<&'s LocalEtcd>,
    /// kube-apiserver.
    pub apiserver: Option<&'s ApiServer>,
    /// The path of the controller's kubeconfig in the containers of the template. The file never changes.
    pub kubeconfig_path: Option<&'s str>,
    /// The folder of the controller's kubeconfig in the containers, if no path is set. The file is updated when certificates
    /// are renewed, and `KUBECONFIG` names it.
    pub kubeconfig_folder: Option<&'s str>,
    /// The template of the pods.
    pub pod_template: Option<&'s Value>,
    /// The field with the template, below `spec`, for errors.
    pub pod_template_field: &'static str,
    /// The number of pods, if the kind of workload has one.
    pub replicas: i32,
    /// Whether the template may share namespaces of the node or among its containers.
    pub allow_shared_namespaces: bool,
    /// Whether unencrypted Secrets may be pushed to public repositories.
    pub allow_public_secrets: bool,
    /// Why no pods should run; `None` if they should.
    pub suspended: Option<&'s str>,
    /// Whether users supply the certificates, which are then only checked.
    pub skips_certificates: bool,
    /// Whether users supply the entry points.
    pub skips_entry_points: bool,
    /// Whether there is no workload, for example because it runs on another machine.
    pub skips_app: bool,
}

/// A user of a kube-apiserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User<'s> {
    /// Its name, such as `system:kube-scheduler`.
    pub name: &'s str,
    /// Its group.
    pub group: Option<&'s str>,
}

impl<'s> HeavenParts<'s> {
    /// Returns the parts of a heaven without settings: a branch `main`, one pod, and certificates with default names.
    pub fn new(name: &'s str) -> Self {
        Self {
            name,
            certificates: names::Certificates::new(name),
            user: None,
            entry_points: names::entry_points(name),
            gitcd: None,
            events_etcd: None,
            apiserver: None,
            kubeconfig_path: None,
            kubeconfig_folder: None,
            pod_template: None,
            pod_template_field: "podTemplate",
            replicas: 1,
            allow_shared_namespaces: false,
            allow_public_secrets: false,
            suspended: None,
            skips_certificates: false,
            skips_entry_points: false,
            skips_app: false,
        }
    }

    /// Returns the parts of a `TrishankuHeaven`.
    pub fn of_spec(name: &'s str, spec: &'s TrishankuHeavenSpec) -> Self {
        let app = spec.app.as_ref();
        let Skip { certificates, entrypoints, app: skips_app } = spec.skip.clone().unwrap_or_default();
        let suspended =
            (spec.suspend == Some(true)).then(|| spec.suspend_reason.as_deref().unwrap_or("spec.suspend is set"));
        Self {
            certificates: names::Certificates::of(name, spec),
            user: spec
                .certificates
                .as_ref()
                .and_then(|given| given.controller.as_ref())
                .map(|given| User { name: &given.user_name, group: given.group_name.as_deref() }),
            entry_points: names::entry_points_of_heaven(name, spec),
            gitcd: spec.gitcd.as_ref(),
            events_etcd: spec.events_etcd.as_ref().and_then(|events| events.local.as_ref()),
            apiserver: spec.apiserver.as_ref(),
            kubeconfig_path: app.and_then(|app| app.kubeconfig_mount_path.as_deref()),
            pod_template: app.map(|app| &app.pod_template),
            pod_template_field: "app.podTemplate",
            replicas: app.and_then(|app| app.replicas).unwrap_or(1),
            allow_shared_namespaces: app.and_then(|app| app.allow_shared_namespaces).unwrap_or_default(),
            allow_public_secrets: spec.allow_public_secrets.unwrap_or_default(),
            suspended,
            skips_certificates: certificates.unwrap_or_default(),
            skips_entry_points: entrypoints.unwrap_or_default(),
            skips_app: skips_app.unwrap_or_default(),
            ..Self::new(name)
        }
    }

    /// Returns the branch as the manifest names it.
    pub fn branch(&self) -> &'s str {
        let git = self.gitcd.and_then(|gitcd| gitcd.git.as_ref());
        git.and_then(|git| git.branches.as_ref()?.data.as_deref()).unwrap_or("main")
    }
}
