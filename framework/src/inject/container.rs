//! The builder of one container.

use std::marker::PhantomData;

use k8s_openapi::api::core::v1::{
    ConfigMapEnvSource, Container as Raw, ContainerPort, EnvFromSource, EnvVar, SecretEnvSource,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::kind::{Awaited, Kind, LongRunning, Ordered, Plain, Sidecar, StartedSidecar};
use super::kubeconfig::MountedKubeconfig;
use super::pod::Pod;
use super::port::Port;
use super::probe::Probe;
use super::reference::{ConfigMapRef, EnvValue, SecretRef};
use super::security::Security;
use super::volume::{Access, Volume, Writable};

/// When kubelet pulls an image. If it is not said, Kubernetes decides by the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    /// Each time.
    Always,
    /// If the node does not have it.
    IfNotPresent,
    /// The node has it.
    Never,
}

/// A container that is being made; [`add`](Self::add) puts it into the pod.
///
/// It borrows the pod until then, so containers are made one after the other. `K` is what it is for: [`Init`](super::Init), [`Sidecar`],
/// [`StartedSidecar`], [`Plain`].
#[derive(Debug)]
#[must_use = "it is in the pod only once it is added"]
pub struct Container<'c, 'p, K> {
    pod: &'c mut Pod<'p>,
    raw: Raw,
    waits_for: Vec<String>,
    kind: PhantomData<K>,
}

impl<'c, 'p, K: Kind> Container<'c, 'p, K> {
    pub(super) fn new(pod: &'c mut Pod<'p>, name: String, image: String) -> Self {
        let security_context = Some(Security::restricted().context);
        let raw = Raw { name, image: Some(image), security_context, ..Raw::default() };
        Self { pod, raw, waits_for: Vec::new(), kind: PhantomData }
    }

    fn but(mut self, change: impl FnOnce(&mut Raw)) -> Self {
        change(&mut self.raw);
        self
    }

    /// When kubelet pulls the image.
    pub fn pull_policy(self, policy: PullPolicy) -> Self {
        self.but(|raw| raw.image_pull_policy = Some(format!("{policy:?}")))
    }

    /// What runs instead of the image's entry point.
    pub fn command<S: Into<String>>(self, command: impl IntoIterator<Item = S>) -> Self {
        self.but(|raw| raw.command = Some(command.into_iter().map(Into::into).collect()))
    }

    /// Further arguments. Kubernetes replaces `$(NAME)` in them by the variable of that name. They are no place for secrets.
    pub fn args<S: Into<String>>(self, args: impl IntoIterator<Item = S>) -> Self {
        self.but(|raw| raw.args.get_or_insert_default().extend(args.into_iter().map(Into::into)))
    }

    /// The folder that it starts in, instead of the image's.
    pub fn working_dir(self, path: impl Into<String>) -> Self {
        self.but(|raw| raw.working_dir = Some(path.into()))
    }

    /// An environment variable: a literal, a [`SecretKey`](super::SecretKey), a [`ConfigMapKey`](super::ConfigMapKey), a [`FieldRef`](super::FieldRef).
    pub fn env(self, name: impl Into<String>, value: impl Into<EnvValue>) -> Self {
        let EnvValue { literal, source } = value.into();
        let variable = EnvVar { name: name.into(), value: literal, value_from: source };
        self.but(|raw| raw.env.get_or_insert_default().push(variable))
    }

    /// All values of a Secret as environment variables.
    pub fn env_from_secret(self, secret: &SecretRef) -> Self {
        let secret = SecretEnvSource { name: secret.name.clone(), optional: None };
        let source = EnvFromSource { secret_ref: Some(secret), ..EnvFromSource::default() };
        self.but(|raw| raw.env_from.get_or_insert_default().push(source))
    }

    /// All values of a `ConfigMap` as environment variables.
    pub fn env_from_config_map(self, map: &ConfigMapRef) -> Self {
        let map = ConfigMapEnvSource { name: map.name.clone(), optional: None };
        let source = EnvFromSource { config_map_ref: Some(map), ..EnvFromSource::default() };
        self.but(|raw| raw.env_from.get_or_insert_default().push(source))
    }

    /// Mounts a volume where it can be read.
    pub fn mount<A: Access>(self, volume: &Volume<'p, A>, path: impl Into<String>) -> Self {
        let mount = volume.mounted(path.into(), false);
        self.but(|raw| raw.volume_mounts.get_or_insert_default().push(mount))
    }

    /// Mounts a volume where it can be read and written.
    pub fn mount_writable(self, volume: &Volume<'p, Writable>, path: impl Into<String>) -> Self {
        let mount = volume.mounted(path.into(), true);
        self.but(|raw| raw.volume_mounts.get_or_insert_default().push(mount))
    }

    /// Mounts a kubeconfig, and says in `KUBECONFIG` where it is.
    pub fn kubeconfig(self, kubeconfig: &MountedKubeconfig<'p>) -> Self {
        let (mount, variable) = (kubeconfig.mount.clone(), kubeconfig.variable());
        self.but(|raw| {
            raw.volume_mounts.get_or_insert_default().push(mount);
            raw.env.get_or_insert_default().push(variable);
        })
    }

    /// What it may do, if that is not [`Security::restricted`].
    pub fn security(self, security: impl Into<Security>) -> Self {
        self.but(|raw| raw.security_context = Some(security.into().context))
    }

    /// What the scheduler sets aside: `request("cpu", "100m")`.
    pub fn request(self, resource: impl Into<String>, quantity: impl Into<String>) -> Self {
        let (resource, quantity) = (resource.into(), Quantity(quantity.into()));
        self.but(|raw| {
            let resources = raw.resources.get_or_insert_default();
            resources.requests.get_or_insert_default().insert(resource, quantity);
        })
    }

    /// What it may use at most: `limit("memory", "256Mi")`.
    pub fn limit(self, resource: impl Into<String>, quantity: impl Into<String>) -> Self {
        let (resource, quantity) = (resource.into(), Quantity(quantity.into()));
        self.but(|raw| {
            let resources = raw.resources.get_or_insert_default();
            resources.limits.get_or_insert_default().insert(resource, quantity);
        })
    }

    /// Declares that it listens on this TCP port. If another container of the pod declares the same number, that is a collision.
    pub fn port(&mut self, name: impl Into<String>, number: u16) -> Port<'c, 'p> {
        let port = ContainerPort { name: Some(name.into()), container_port: number.into(), ..ContainerPort::default() };
        self.raw.ports.get_or_insert_default().push(port);
        Port::new(number, self.pod.brand)
    }

    /// Declares that it listens on a TCP port, and finds the number: the first from `from` that no container has declared so far, nor is probed at
    /// in the user's template, nor that programs of a node listen on if the pod is in the node's network.
    ///
    /// The same template gives the same number, also one that this was injected into before. Ports that must have a certain number come first:
    /// what is declared later is not known yet.
    pub fn port_near(&mut self, name: impl Into<String>, from: u16) -> Port<'c, 'p> {
        let name = name.into();
        let number = self.pod.free_port(&self.raw, from).unwrap_or_else(|| {
            let path = format!("spec.{}[{}].ports[{name}]", K::PLACE.list(), self.raw.name);
            let found = format!("finds no free number from {from}");
            self.pod.problems().invalid(path, found, "look from a lower one");
            from
        });
        self.port(name, number)
    }

    /// Puts it into the pod.
    ///
    /// What is wrong with it by itself (names, paths, things that are there twice) is said by [`finish`](super::Injector::finish).
    pub fn add(self) -> K::Added<'p> {
        let awaited = Awaited::new(self.raw.name.clone(), self.pod.brand);
        self.pod.add(K::PLACE, self.raw, self.waits_for);
        K::added(awaited)
    }
}

impl<'p, K: Ordered> Container<'_, 'p, K> {
    /// Starts only when `earlier` has ended or started.
    ///
    /// It does anyhow, since containers are started in the order in which they are added; this makes the compiler and
    /// [`finish`](super::Injector::finish) see to it that it stays so.
    pub fn after(mut self, earlier: &Awaited<'p>) -> Self {
        self.waits_for.push(earlier.name.clone());
        self
    }
}

impl<'c, 'p, K: LongRunning> Container<'c, 'p, K> {
    /// While it fails, the pod is not ready.
    pub fn readiness(self, probe: Probe<'c, 'p>) -> Self {
        self.but(|raw| raw.readiness_probe = Some(probe.raw))
    }

    /// When it fails, the container is started anew.
    pub fn liveness(self, probe: Probe<'c, 'p>) -> Self {
        self.but(|raw| raw.liveness_probe = Some(probe.raw))
    }
}

impl<'c, 'p> Container<'c, 'p, Sidecar> {
    /// It has started when this succeeds, and what comes after it starts only then. When it fails, the container is started anew.
    pub fn startup(self, probe: Probe<'c, 'p>) -> Container<'c, 'p, StartedSidecar> {
        let Self { pod, mut raw, waits_for, .. } = self;
        raw.startup_probe = Some(probe.raw);
        Container { pod, raw, waits_for, kind: PhantomData }
    }
}

impl<'c, 'p> Container<'c, 'p, Plain> {
    /// It has started when this succeeds, and is not probed otherwise before. Nobody waits for it.
    pub fn startup(self, probe: Probe<'c, 'p>) -> Self {
        self.but(|raw| raw.startup_probe = Some(probe.raw))
    }
}
