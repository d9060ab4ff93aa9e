//! Renders manifests as components of the supervisor.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use trishanku_api::{AutomatedMergeSpec, Gitcd, TrishankuHeavenSpec};
use trishanku_heaven_plan::exposure::{self, Leak};
use trishanku_heaven_plan::plan::{self, EntryPoints, Images, Plan, PlanError};
use trishanku_heaven_plan::{HeavenParts, encryption, names};

use super::error::RenderError;
use super::flags::{self, FlagOption};
use super::images::ImagePrograms;
use super::manifest::Manifests;
use super::remotes::{self, RemoteOption};
use super::render_context::RenderContext;
use super::renewal::Renewal;
use super::secrets::{SecretError, Secrets, write};
use super::servers::{self, kubeconfigs};
use super::site::Site;
use super::users::UsersPod;
use crate::plane::audit;
use crate::plane::components::Component;
use crate::plane::ports::{self, Moved, Reservations};
use crate::plane::{Assets, Home};
use crate::record::{HeavenRecord, Kind, RemoteRecord};

/// Everything that determines the components.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The folder of the control plane.
    pub home: &'a Home,
    /// The Kubernetes programs.
    pub assets: &'a Assets,
    /// The gitcd program.
    pub gitcd: &'a Path,
    /// Programs by image.
    pub images: &'a ImagePrograms,
    /// Repositories that replace others.
    pub remotes: &'a [RemoteOption],
    /// Flags that processes do not get.
    pub dropped_flags: &'a [FlagOption],
    /// Flags that processes get.
    pub added_flags: &'a [FlagOption],
    /// Which commits name the users of kube-apiserver.
    pub audit: Audit,
    /// The ports of the previous run.
    pub ports: &'a BTreeMap<String, u16>,
    /// Additional components that a heaven waits for on its first start.
    pub after: &'a BTreeMap<String, Vec<String>>,
}

/// The rendered manifests.
#[derive(Debug, Default)]
pub struct Rendered {
    /// The processes.
    pub components: Vec<Component>,
    /// Heavens and merges, in the order of the manifests.
    pub records: Vec<HeavenRecord>,
    /// Their ports.
    pub ports: BTreeMap<String, u16>,
    /// Ports that changed because another program uses the old ones.
    pub moved: Vec<Moved>,
    /// Keeps the ports from other control planes.
    pub reservations: Reservations,
    /// Secrets with new certificates.
    pub issued: Vec<String>,
    /// Remarks for the user.
    pub remarks: Vec<Remark>,
    /// Renews the certificates.
    pub renewal: Option<Renewal>,
}

/// A remark about the manifests for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remark {
    /// An object is not used.
    Ignored(super::manifest::Ignored),
    /// A heaven or merge is suspended, or has no replicas.
    Rests(String),
    /// A heaven runs as one process, whatever its number of replicas.
    OneReplica(String),
    /// A repository was created.
    RepositoryMade(PathBuf),
    /// The Secret with credentials is missing, but all remotes are on this machine.
    NoCredentials {
        /// The heaven or merge.
        of: String,
        /// The Secret.
        secret: String,
    },
    /// Unencrypted Secrets may get to a repository that is not known to be private. In a cluster, the manager refuses this.
    Exposed {
        /// The heaven or merge.
        of: String,
        /// Which remote, and why.
        how: String,
    },
}

impl Rendered {
    /// Issues certificates, writes folders and files, and renders the components.
    ///
    /// # Errors
    /// See [`RenderError`].
    pub fn of(mut manifests: Manifests, request: &Request<'_>) -> Result<Self, RenderError> {
        let mut rendered = Self::default();
        rendered.remarks.extend(manifests.ignored.drain(..).map(Remark::Ignored));
        let made = remotes::replace(&mut manifests, request.remotes)?;
        rendered.remarks.extend(made.into_iter().map(Remark::RepositoryMade));
        rendered.remarks.extend(exposed(&manifests));
        let secrets = Secrets::new(request.home.secrets(), std::mem::take(&mut manifests.secrets));
        let (mut due, mut ours) = (None, Vec::new());
        // Certificates first: a heaven may mount those of another one.
        for (name, spec) in &manifests.heavens {
            if spec.skip.as_ref().and_then(|skip| skip.certificates) != Some(true) {
                let made = secrets.issue(name, spec)?;
                rendered.issued.extend(made.secrets);
                due = due.into_iter().chain(made.look_again).min();
                ours.push((name.clone(), spec.clone()));
            }
        }
        let mut jobs = jobs(&manifests, &mut rendered.remarks)?;
        for job in &mut jobs {
            job.forget_missing_credentials(&secrets, &mut rendered.remarks);
        }
        let names: Vec<String> = jobs.iter().flat_map(Job::port_names).collect();
        let allotted = ports::allot(&names, request.ports)
            .map_err(|source| super::SecretError::File { path: "a loopback port".into(), source })?;
        (rendered.ports, rendered.moved, rendered.reservations) =
            (allotted.ports, allotted.moved, allotted.reservations);
        let context = RenderContext {
            home: request.home,
            assets: request.assets,
            gitcd: request.gitcd,
            images: request.images,
            secrets: &secrets,
            config_maps: &manifests.config_maps,
            copies: RefCell::default(),
        };
        for job in jobs {
            let site = Site::new(request.home, &job.site, &rendered.ports);
            let is_new = !Path::new(&site.place.repository()).join("refs/gitcd").exists();
            let (mut components, record) = job.render(&context, &site)?;
            if request.audit.is_of(&site.name) {
                connect_audit(&mut components, &site)?;
            }
            if let Some(first) = components.first_mut().filter(|_| is_new) {
                first.after.extend(request.after.get(&site.name).into_iter().flatten().cloned());
            }
            rendered.components.extend(components);
            rendered.records.push(record);
        }
        let copies = context.copies.into_inner();
        rendered.renewal = Some(Renewal { secrets, heavens: ours, copies, persons: None, due });
        let mut seen = BTreeSet::new();
        if let Some(twice) = rendered.components.iter().find(|component| !seen.insert(&component.name)) {
            return Err(RenderError::Twice(twice.name.clone()));
        }
        flags::apply(&mut rendered.components, request.dropped_flags, request.added_flags)?;
        Ok(rendered)
    }
}

/// The heavens whose commits name the users of kube-apiserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audit {
    /// None.
    Off,
    /// The one of this name.
    OfHeaven(&'static str),
    /// All.
    OfAll,
}

impl Audit {
    /// Returns the same heavens, or none.
    #[must_use]
    pub fn only_if(self, is_on: bool) -> Self {
        if is_on { self } else { Self::Off }
    }

    fn is_of(self, name: &str) -> bool {
        match self {
            Self::Off => false,
            Self::OfHeaven(only) => only == name,
            Self::OfAll => true,
        }
    }
}

/// Connects the audit events of a heaven's kube-apiserver with its gitcd.
fn connect_audit(components: &mut [Component], site: &Site) -> Result<(), RenderError> {
    let names = (&*site.component("gitcd"), &*site.component("kube-apiserver"));
    let connected = audit::connect(components, names, &site.dir.join("audit"), site.audit_port());
    connected.map_err(|(path, source)| SecretError::File { path, source }.into())
}

/// Returns the heavens and merges that may send unencrypted Secrets to a public repository.
fn exposed(manifests: &Manifests) -> Vec<Remark> {
    let heavens = manifests.heavens.iter().map(|(name, spec)| {
        let apiserver = spec.apiserver.as_ref();
        let secret = encryption::secret(apiserver).and_then(|secret| manifests.secrets.get(secret));
        let file = secret.map(|secret| secret.get(encryption::FILE).map(Vec::as_slice).unwrap_or_default());
        let leak = exposure::of_heaven(&HeavenParts::of_spec(name, spec), &[], encryption::of(apiserver, file));
        (format!("heaven {name:?}"), leak)
    });
    let merges = manifests.merges.iter().map(|(name, spec)| (format!("merge {name:?}"), exposure::of_merge(spec, &[])));
    let exposed = heavens.chain(merges).filter_map(|(of, leak)| match leak? {
        Leak::Public(how) | Leak::Undeclared(how) => Some(Remark::Exposed { of, how }),
        // A missing Secret is an error later.
        Leak::Unknown(_) => None,
    });
    exposed.collect()
}

/// A heaven or merge to render.
struct Job {
    /// The object's name.
    name: String,
    /// The name of its site.
    site: String,
    what: What,
}

enum What {
    Heaven(Box<TrishankuHeavenSpec>, Option<Box<UsersPod>>),
    Merge(Box<AutomatedMergeSpec>),
}

fn jobs(manifests: &Manifests, remarks: &mut Vec<Remark>) -> Result<Vec<Job>, RenderError> {
    let mut jobs = Vec::new();
    for (name, spec) in &manifests.heavens {
        // A heaven without app only makes what others share.
        if spec.skip.as_ref().and_then(|skip| skip.app) == Some(true) {
            continue;
        }
        if spec.suspend == Some(true) {
            remarks.push(Remark::Rests(format!("heaven {name:?}")));
            continue;
        }
        let replicas = spec.app.as_ref().and_then(|app| app.replicas).unwrap_or(1);
        if replicas > 1 {
            remarks.push(Remark::OneReplica(format!("heaven {name:?}")));
        }
        let app = spec.app.as_ref().filter(|_| replicas > 0);
        let pod = app.map(|app| UsersPod::read(name, &app.pod_template)).transpose()?.map(Box::new);
        jobs.push(Job { name: name.clone(), site: name.clone(), what: What::Heaven(Box::new(spec.clone()), pod) });
    }
    for (name, spec) in &manifests.merges {
        if spec.suspend == Some(true) || spec.app.replicas == Some(0) {
            remarks.push(Remark::Rests(format!("merge {name:?}")));
            continue;
        }
        jobs.push(Job { name: name.clone(), site: names::merge(name), what: What::Merge(Box::new(spec.clone())) });
    }
    let mut seen = BTreeSet::new();
    match jobs.iter().find(|job| !seen.insert(job.site.clone())) {
        Some(twice) => Err(RenderError::Twice(twice.site.clone())),
        None => Ok(jobs),
    }
}

impl Job {
    fn of(&self) -> String {
        match &self.what {
            What::Heaven(..) => format!("heaven {:?}", self.name),
            What::Merge(_) => format!("merge {:?}", self.name),
        }
    }

    fn gitcd(&self) -> Option<&Gitcd> {
        match &self.what {
            What::Heaven(spec, _) => spec.gitcd.as_ref(),
            What::Merge(spec) => spec.gitcd.as_ref(),
        }
    }

    fn gitcd_mut(&mut self) -> Option<&mut Gitcd> {
        match &mut self.what {
            What::Heaven(spec, _) => spec.gitcd.as_mut(),
            What::Merge(spec) => spec.gitcd.as_mut(),
        }
    }

    fn port_names(&self) -> Vec<String> {
        let further = match &self.what {
            What::Heaven(_, Some(pod)) => pod.port_names(),
            What::Heaven(_, None) | What::Merge(_) => Vec::new(),
        };
        Site::port_names(&self.site, self.gitcd().is_some_and(|gitcd| gitcd.host.is_some()), &further)
    }

    /// Repositories on this machine need no credentials, so the Secret may be missing.
    fn forget_missing_credentials(&mut self, secrets: &Secrets, remarks: &mut Vec<Remark>) {
        let of = self.of();
        let Some(gitcd) = self.gitcd_mut() else { return };
        let mut remotes = gitcd.git.iter().flat_map(|git| &git.remotes);
        let all_here = remotes.all(|remote| remotes::folder(&remote.repo).is_some());
        if all_here && let Some(secret) = gitcd.credentials_secret_name.take_if(|secret| !secrets.has(secret)) {
            remarks.push(Remark::NoCredentials { of, secret });
        }
    }

    fn render(
        mut self,
        context: &RenderContext<'_>,
        site: &Site,
    ) -> Result<(Vec<Component>, HeavenRecord), RenderError> {
        if let Some(host) = self.gitcd_mut().and_then(|gitcd| gitcd.host.as_mut()) {
            host.port = Some(site.host_port().into());
        }
        let of = self.of();
        let wrong = |source: PlanError| RenderError::Plan { of: of.clone(), source };
        let entry_points = |map: String| {
            let keys = context.config_maps.get(&map).into_iter().flat_map(|data| data.keys());
            EntryPoints::of(keys.map(String::as_str))
        };
        let images = Images::default();
        let references = plan::references(self.gitcd()).map_err(wrong)?;
        let remotes = references.remotes.into_iter().map(|remote| RemoteRecord {
            name: remote.name,
            branch: remote.branch,
            folder: remotes::folder(&remote.url),
        });
        let mut record = HeavenRecord {
            name: site.name.clone(),
            kind: Kind::Merge,
            branch: references.branch,
            metadata: Some(references.metadata),
            repository: site.place.repository().into(),
            gitcd_port: None,
            kubeconfig: None,
            remotes: remotes.collect(),
        };
        let components = match &self.what {
            What::Merge(spec) => {
                let map = entry_points(names::entry_points_of_merge(&self.name, spec));
                let plan: Plan = plan::merge(&self.name, spec, &images, &site.place, &map).map_err(wrong)?;
                servers::components(context, site, &plan)?
            }
            What::Heaven(spec, pod) => {
                let parts = HeavenParts::of_spec(&self.name, spec);
                let map = entry_points(parts.entry_points.clone());
                let plan = plan::heaven(&parts, &images, &site.place, &map).map_err(wrong)?;
                let mut components = servers::components(context, site, &plan)?;
                if let Some(pod) = pod {
                    let before = components.last().map(|last| last.name.clone());
                    components.extend(pod.components(context, site, plan.kubeconfig.as_ref(), before.as_deref())?);
                }
                record.kind = Kind::Heaven;
                record.gitcd_port = Some(site.place.ports.gitcd);
                let admin = parts.certificates.admin;
                if context.secrets.has(&admin) {
                    let data = kubeconfigs(site, context.secrets.get(&admin, &of)?);
                    if let Some(kubeconfig) = data.get("kubeconfig") {
                        let path = site.dir.join("kubeconfig");
                        write(&path, kubeconfig, 0o600)?;
                        context.shows(site, &admin, "kubeconfig", path.clone(), false);
                        record.kubeconfig = Some(path);
                    }
                }
                components
            }
        };
        Ok((components, record))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_that_may_become_public_are_remarked() {
        let remotes = json!({"git": {"remotes": [{"repo": "https://git.example.org/x"}]}});
        let encrypted = json!({"encryptionConfigurationSecretName": "e"});
        let heaven = |spec| serde_json::from_value::<TrishankuHeavenSpec>(spec).unwrap();
        let merge = |spec| serde_json::from_value::<AutomatedMergeSpec>(spec).unwrap();
        let file = b"resources: [{resources: [secrets], providers: [{aescbc: {}}]}]".to_vec();
        let manifests = Manifests {
            heavens: vec![
                ("plain".to_owned(), heaven(json!({"gitcd": remotes}))),
                ("encrypted".to_owned(), heaven(json!({"gitcd": remotes, "apiserver": encrypted}))),
                ("local".to_owned(), heaven(json!({"gitcd": {"git": {"remotes": [{"repo": "/srv/x"}]}}}))),
            ],
            merges: vec![("m".to_owned(), merge(json!({"gitcd": remotes, "app": {"committerName": "m"}})))],
            secrets: [("e".to_owned(), [(encryption::FILE.to_owned(), file)].into())].into(),
            ..Manifests::default()
        };
        let exposed = exposed(&manifests);
        let [Remark::Exposed { of: heaven, how }, Remark::Exposed { of: merge, .. }] = &exposed[..] else {
            panic!("{exposed:?}")
        };
        assert_eq!((heaven.as_str(), merge.as_str()), ("heaven \"plain\"", "merge \"m\""));
        assert!(how.contains("git.example.org/x"), "{how}");
    }
}
