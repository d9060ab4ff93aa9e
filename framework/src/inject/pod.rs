//! The pod under construction.

use k8s_openapi::api::core::v1::{
    Container as Raw, EnvVar, PodSecurityContext, PodSpec, PodTemplateSpec, Volume as RawVolume, VolumeMount,
};

use super::brand::Brand;
use super::container::Container;
use super::kind::{Init, Place, Plain, Sidecar};
use super::kubeconfig::{FILE, Kubeconfig, MountedKubeconfig, Users};
use super::metadata::Metadata;
use super::pod_security::{self, Difference, PodSecurity};
use super::port;
use super::problem::Problems;
use super::reference::{SecretKey, SecretRef};
use super::volume::{self, Access, Source, Volume};

/// A user's template, and the additions.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) template: PodTemplateSpec,
    pub(super) metadata: Metadata,
    pub(super) security: PodSecurityContext,
    pub(super) volumes: Vec<RawVolume>,
    /// Names of volumes that no container may mount writable.
    pub(super) read_only: Vec<String>,
    pub(super) init_containers: Vec<InOrder>,
    pub(super) containers: Vec<Raw>,
    pub(super) pull_secrets: Vec<String>,
    pub(super) grants: Vec<Grant>,
    /// Names of volumes that the user's containers must not mount.
    pub(super) private: Vec<String>,
    pub(super) problems: Problems,
}

/// A container that is started in order, and those that it waits for.
#[derive(Debug)]
pub(super) struct InOrder {
    pub(super) container: Raw,
    pub(super) after: Vec<String>,
}

/// A kubeconfig for the user's containers.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) to: Users,
    pub(super) mount: VolumeMount,
    pub(super) variable: Option<EnvVar>,
}

impl Draft {
    pub(super) fn new(template: PodTemplateSpec) -> Self {
        Self {
            template,
            metadata: Metadata::default(),
            security: PodSecurityContext::default(),
            volumes: Vec::new(),
            read_only: Vec::new(),
            init_containers: Vec::new(),
            containers: Vec::new(),
            pull_secrets: Vec::new(),
            grants: Vec::new(),
            private: Vec::new(),
            problems: Problems::default(),
        }
    }

    /// Returns all injected containers, with the list that they belong in.
    pub(super) fn injected(&self) -> impl Iterator<Item = (&'static str, &Raw)> {
        let ordered = self.init_containers.iter().map(|ordered| (Place::Init.list(), &ordered.container));
        ordered.chain(self.containers.iter().map(|container| (Place::Container.list(), container)))
    }
}

/// The pod under construction, in [`Injector::with`](super::Injector::with).
///
/// `'p` is unique to it, so its handles do not compile with another pod.
#[derive(Debug)]
pub struct Pod<'p> {
    pub(super) draft: Draft,
    pub(super) brand: Brand<'p>,
}

impl<'p> Pod<'p> {
    /// Returns the user's template, without the additions.
    pub fn template(&self) -> &PodTemplateSpec {
        &self.draft.template
    }

    /// Returns whether the pod is in the node's network. Its ports and its loopback are then the node's.
    pub fn is_in_host_network(&self) -> bool {
        self.draft.template.spec.as_ref().is_some_and(port::host_network)
    }

    /// Sets a label of the pod. If the user's template has it with another value, that is a collision.
    pub fn label(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let Draft { metadata, problems, .. } = &mut self.draft;
        metadata.label(key.into(), value.into(), problems);
    }

    /// Sets an annotation of the pod. If the user's template has it with another value, that is a collision.
    pub fn annotation(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let Draft { metadata, problems, .. } = &mut self.draft;
        metadata.annotation(key.into(), value.into(), problems);
    }

    /// Sets fields of the pod's security context. If the user's template has them with other values, that is a collision.
    ///
    /// Can be called several times, with different fields.
    pub fn security(&mut self, security: PodSecurity) {
        let PodSecurity { context } = security;
        pod_security::check(&context, &mut self.draft.problems);
        for Difference { path, found } in pod_security::merge(&context, &mut self.draft.security) {
            self.draft.problems.invalid(path, found, "set it once");
        }
    }

    /// Adds a volume.
    pub fn volume<S: Source>(&mut self, name: impl Into<String>, source: S) -> Volume<'p, S::Access> {
        let name = name.into();
        if !volume::is_writable::<S::Access>() {
            self.draft.read_only.push(name.clone());
        }
        self.draft.volumes.push(RawVolume { name: name.clone(), ..source.volume() });
        Volume::new(name, self.brand)
    }

    /// Keeps a volume from the user's containers: a template whose containers mount it by its name is a collision.
    ///
    /// For volumes with keys or data that only the injected containers may read.
    pub fn keep_private<A: Access>(&mut self, volume: &Volume<'p, A>) {
        self.draft.private.push(volume.name().to_owned());
    }

    /// Adds a volume with a kubeconfig from a Secret.
    pub fn kubeconfig(&mut self, volume: impl Into<String>, kubeconfig: SecretKey) -> Kubeconfig<'p> {
        let SecretKey { secret, key, optional } = kubeconfig;
        let files = secret.files().item(key, FILE);
        Kubeconfig { volume: self.volume(volume, if optional == Some(true) { files.optional() } else { files }) }
    }

    /// Mounts a kubeconfig into the user's containers, and sets `KUBECONFIG` to its path.
    ///
    /// If a container already has the variable with another value, that is a collision: the container would use another
    /// cluster than intended, or the user's setting would be lost. A variable from a whole Secret or `ConfigMap` (`envFrom`)
    /// cannot be seen here, and is overridden.
    pub fn give_kubeconfig(&mut self, to: Users, kubeconfig: &MountedKubeconfig<'p>) {
        let (mount, variable) = (kubeconfig.mount.clone(), Some(kubeconfig.variable()));
        self.draft.grants.push(Grant { to, mount, variable });
    }

    /// Mounts a kubeconfig into the user's containers, without a variable.
    pub fn mount_kubeconfig(&mut self, to: Users, kubeconfig: &MountedKubeconfig<'p>) {
        self.draft.grants.push(Grant { to, mount: kubeconfig.mount.clone(), variable: None });
    }

    /// Adds a Secret with credentials for pulling images.
    pub fn pull_with(&mut self, secret: &SecretRef) {
        self.draft.pull_secrets.push(secret.name.clone());
    }

    /// Builds a container that runs to its end before later ones start: init containers and sidecars in the order in which
    /// they were added, then the user's.
    pub fn init(&mut self, name: impl Into<String>, image: impl Into<String>) -> Container<'_, 'p, Init> {
        Container::new(self, name.into(), image.into())
    }

    /// Builds a native sidecar: an init container that keeps running, and stops after the user's containers.
    pub fn sidecar(&mut self, name: impl Into<String>, image: impl Into<String>) -> Container<'_, 'p, Sidecar> {
        Container::new(self, name.into(), image.into())
    }

    /// Builds a container beside the user's, in no order with them.
    pub fn container(&mut self, name: impl Into<String>, image: impl Into<String>) -> Container<'_, 'p, Plain> {
        Container::new(self, name.into(), image.into())
    }

    pub(super) fn add(&mut self, place: Place, mut container: Raw, after: Vec<String>) {
        if place == Place::Sidecar {
            container.restart_policy = Some("Always".to_owned());
        }
        match place {
            Place::Init | Place::Sidecar => self.draft.init_containers.push(InOrder { container, after }),
            Place::Container => self.draft.containers.push(container),
        }
    }

    /// Returns the first free number from `from` for a port of `container`, which is not added yet; `None` if there is none.
    pub(super) fn free_port(&self, container: &Raw, protocol: &str, from: u16) -> Option<u16> {
        let nothing = PodSpec::default();
        let users = self.draft.template.spec.as_ref().unwrap_or(&nothing);
        let ours = self.draft.injected().map(|(_, container)| container).chain([container]);
        let ours = ours.flat_map(|container| container.ports.iter().flatten());
        let ours: Vec<_> = ours.filter(|port| port::protocol(port) == protocol).collect();
        let is_ours = |number: u16| ours.iter().any(|port| port.container_port == i32::from(number));
        let is_free = |number: &u16| !is_ours(*number) && !port::is_taken(*number, protocol, &container.name, users);
        (from.max(1)..=u16::MAX).find(is_free)
    }

    pub(super) fn problems(&mut self) -> &mut Problems {
        &mut self.draft.problems
    }
}
