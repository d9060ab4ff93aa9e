//! Injects sidecars into existing pods: typed, so that an invalid pod does not compile, and without changes to what the user
//! wrote.
//!
//! ```
//! use std::time::Duration;
//! use k8s_openapi::api::core::v1::PodTemplateSpec;
//! use trishanku_framework::inject::{EmptyDir, InjectError, Injector, Probe, SecretRef, Users};
//!
//! fn heaven(users: PodTemplateSpec) -> Result<PodTemplateSpec, InjectError> {
//!     Injector::new(users)
//!         .with(|pod| {
//!             let repository = pod.volume("repo", EmptyDir::new());
//!             let certificates = pod.volume("certificates", SecretRef::named("heaven-cert").files());
//!             let kubeconfig = pod.kubeconfig("kubeconfig", SecretRef::named("heaven-app").key("kubeconfig"));
//!
//!             let cloned = pod
//!                 .init("git-pre", "gitcd:1")
//!                 .args(["clone", "/repo"])
//!                 .env("PASSWORD", SecretRef::named("git").key("password"))
//!                 .mount_writable(&repository, "/repo")
//!                 .add();
//!
//!             let mut gitcd = pod.sidecar("gitcd", "gitcd:1");
//!             let client = gitcd.port_near("etcd", 2479);
//!             let store = format!("http://127.0.0.1:{client}");
//!             let gitcd = gitcd
//!                 .args(["serve", "--repo=/repo"])
//!                 .mount_writable(&repository, "/repo")
//!                 .startup(Probe::grpc(&client).every(Duration::from_secs(1)).failures(300))
//!                 .after(&cloned)
//!                 .add();
//!
//!             let mut apiserver = pod.sidecar("kube-apiserver", "kube-apiserver:v1.36.3");
//!             let https = apiserver.port("https", 6443);
//!             apiserver
//!                 .args([format!("--etcd-servers={store}"), format!("--secure-port={https}")])
//!                 .mount(&certificates, "/certificates")
//!                 .startup(Probe::https(&https, "/readyz"))
//!                 .after(&gitcd)
//!                 .add();
//!
//!             pod.give_kubeconfig(Users::All, &kubeconfig.in_folder("/var/run/heaven"));
//!         })
//!         .finish()
//! }
//!
//! let users = serde_json::from_value(serde_json::json!({"spec": {"containers": [{"name": "app", "image": "app:1"}]}}))?;
//! let spec = heaven(users)?.spec.expect("the template has a spec");
//! assert_eq!(spec.init_containers.map(|containers| containers.len()), Some(3));
//! assert_eq!(spec.containers[0].env.as_ref().map(|env| env[0].name.as_str()), Some("KUBECONFIG"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **What does not compile.** A mount of a volume that was not added, or was added to another pod; a writable mount of
//! something read-only (Secrets, `ConfigMap`s, tokens, read-only claims); a network probe or hook of a port that the
//! container does not declare, or of a UDP port; a liveness probe with a success threshold; a container without an image; an
//! order for a plain container; waiting for a sidecar without a startup probe.
//!
//! **Nothing is overwritten.** What is set twice, and a container that was begun and not added, is reported by
//! [`finish`](Injector::finish), with everything that an API server would reject. For fields that the builder does not know,
//! there is [`Container::raw`], under the same checks.
//!
//! **The user's fields stay.** Nothing is changed or removed. A conflict is a [collision](ProblemKind::Collision); all of
//! them are reported together, each with its path, what was found, and what to do.
//!
//! **Injection is idempotent.** What the template already has, with the same name and content, stays where it is and as it
//! is. Defaults of an apiserver, and variables, mounts and resources that webhooks add to a container, do not count; any
//! other difference is a collision. So is an *older* injection, which cannot be distinguished from what a user wrote. A
//! controller never sees one if it starts from the user's template each time, as it should. Neither does a webhook for Pods,
//! which sees its own output when it is invoked again. A webhook for workloads would; write one for Pods instead.
//!
//! **Fields of another Kubernetes.** [`inject_json`] accepts a template as JSON, and keeps fields that this program's types
//! do not know.
//!
//! **Order.** Init containers and native sidecars come in the order in which they were added, before the user's, which may
//! depend on them. Containers and volumes come after the user's, because `kubectl logs` shows the first container by default.
//! Sidecars stop in reverse order, after all containers.

mod brand;
mod checks;
mod clashes;
mod container;
mod env;
mod files;
mod finish;
mod grants;
mod handlers;
mod hook;
mod http;
mod json;
mod kind;
mod kubeconfig;
mod metadata;
mod mounts;
mod pod;
mod pod_security;
mod port;
mod probe;
mod problem;
mod recognise;
mod reference;
mod security;
mod volume;

use k8s_openapi::api::core::v1::PodTemplateSpec;

pub use self::container::{Container, PullPolicy};
pub use self::env::{EnvFrom, EnvValue, FieldRef, ResourceFieldRef};
pub use self::files::Files;
pub use self::hook::LifecycleHook;
pub use self::http::HttpGet;
pub use self::json::{JsonError, inject_json};
pub use self::kind::{Awaited, Init, Kind, LongRunning, Ordered, Plain, Sidecar, StartedSidecar};
pub use self::kubeconfig::{KUBECONFIG, Kubeconfig, MountedKubeconfig, Users};
pub use self::pod::Pod;
pub use self::pod_security::{FsGroupChangePolicy, PodSecurity};
pub use self::port::{Port, Protocol, Sctp, Tcp, Udp};
pub use self::probe::{AnyProbe, ForReadiness, ForRestart, Probe, ReadinessOnly, RestartOnly};
pub use self::problem::{InjectError, Problem, ProblemKind};
pub use self::reference::{ConfigMapKey, ConfigMapRef, SecretKey, SecretRef};
pub use self::security::Security;
pub use self::volume::{
    Access, Claim, Csi, EmptyDir, EphemeralClaim, HostPath, HostPathType, Projected, ReadOnly, Source, Volume, Writable,
};

use self::brand::Brand;
use self::pod::Draft;

/// An injection into a user's template. See the [module](self).
#[derive(Debug)]
pub struct Injector {
    draft: Draft,
}

impl Injector {
    /// Starts with the template as the user wrote it.
    pub fn new(template: PodTemplateSpec) -> Self {
        Self { draft: Draft::new(template) }
    }

    /// Calls `build`, which adds to the pod; can be called several times.
    ///
    /// Handles are valid within one call only: the compiler rejects those of another.
    #[must_use]
    pub fn with(self, build: impl for<'p> FnOnce(&mut Pod<'p>)) -> Self {
        let mut pod = Pod { draft: self.draft, brand: Brand::default() };
        build(&mut pod);
        Self { draft: pod.draft }
    }

    /// Returns the template with all additions.
    ///
    /// Takes time that grows with the square of the number of containers, and of their ports.
    ///
    /// # Errors
    /// [`InjectError`] with all collisions, and everything that is invalid in the additions.
    pub fn finish(self) -> Result<PodTemplateSpec, InjectError> {
        finish::finish(self.draft)
    }
}
