//! The builder of a container.

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

/// When kubelet pulls an image. By default, Kubernetes decides by the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    /// At each start.
    Always,
    /// If the node does not have it.
    IfNotPresent,
    /// Never: the node must have it.
    Never,
}

/// A container under construction; [`add`](Self::add) puts it into the pod.
///
/// It borrows the pod until then, so containers are built one after the other. `K` is its kind: [`Init`](super::Init),
/// [`Sidecar`], [`StartedSidecar`], [`Plain`].
#[derive(Debug)]
#[must_use = "the container is in the pod only after `add`"]
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

    /// Sets when kubelet pulls the image.
    pub fn pull_policy(self, policy: PullPolicy) -> Self {
        self.but(|raw| raw.image_pull_policy = Some(format!("{policy:?}")))
    }

    /// Sets the command, which replaces the image's entry point.
    pub fn command<S: Into<String>>(self, command: impl IntoIterator<Item = S>) -> Self {
        self.but(|raw| raw.command = Some(command.into_iter().map(Into::into).collect()))
    }

    /// Adds arguments. Kubernetes replaces `$(NAME)` in them with the variable of that name. Do not put secrets here.
    pub fn args<S: Into<String>>(self, args: impl IntoIterator<Item = S>) -> Self {
        self.but(|raw| raw.args.get_or_insert_default().extend(args.into_iter().map(Into::into)))
    }

    /// Sets the working directory, which replaces the image's.
    pub fn working_dir(self, path: impl Into<String>) -> Self {
        self.but(|raw| raw.working_dir = Some(path.into()))
    }

    /// Adds an environment variable: a literal, a [`SecretKey`](super::SecretKey), a [`ConfigMapKey`](super::ConfigMapKey), a
    /// [`FieldRef`](super::FieldRef).
    pub fn env(self, name: impl Into<String>, value: impl Into<EnvValue>) -> Self {
        let EnvValue { literal, source } = value.into();
        let variable = EnvVar { name: name.into(), value: literal, value_from: source };
        self.but(|raw| raw.env.get_or_insert_default().push(variable))
    }

    /// Adds all values of a Secret as environment variables.
    pub fn env_from_secret(self, secret: &SecretRef) -> Self {
        let secret = SecretEnvSource { name: secret.name.clone(), optional: None };
        let source = EnvFromSource { secret_ref: Some(secret), ..EnvFromSource::default() };
        self.but(|raw| raw.env_from.get_or_insert_default().push(source))
    }

    /// Adds all values of a `ConfigMap` as environment variables.
    pub fn env_from_config_map(self, map: &ConfigMapRef) -> Self {
        let map = ConfigMapEnvSource { name: map.name.clone(), optional: None };
        let source = EnvFromSource { config_map_ref: Some(map), ..EnvFromSource::default() };
        self.but(|raw| raw.env_from.get_or_insert_default().push(source))
    }

    /// Mounts a volume for reading.
    pub fn mount<A: Access>(self, volume: &Volume<'p, A>, path: impl Into<String>) -> Self {
        let mount = volume.mounted(path.into(), false);
        self.but(|raw| raw.volume_mounts.get_or_insert_default().push(mount))
    }

    /// Mounts a volume for reading and writing.
    pub fn mount_writable(self, volume: &Volume<'p, Writable>, path: impl Into<String>) -> Self {
        let mount = volume.mounted(path.into(), true);
        self.but(|raw| raw.volume_mounts.get_or_insert_default().push(mount))
    }

    /// Mounts a kubeconfig, and sets `KUBECONFIG` to its path.
    pub fn kubeconfig(self, kubeconfig: &MountedKubeconfig<'p>) -> Self {
        let (mount, variable) = (kubeconfig.mount.clone(), kubeconfig.variable());
        self.but(|raw| {
            raw.volume_mounts.get_or_insert_default().push(mount);
            raw.env.get_or_insert_default().push(variable);
        })
    }

    /// Sets the permissions; by default [`Security::restricted`].
    pub fn security(self, security: impl Into<Security>) -> Self {
        self.but(|raw| raw.security_context = Some(security.into().context))
    }

    /// Sets a resource request: `request("cpu", "100m")`.
    pub fn request(self, resource: impl Into<String>, quantity: impl Into<String>) -> Self {
        let (resource, quantity) = (resource.into(), Quantity(quantity.into()));
        self.but(|raw| {
            let resources = raw.resources.get_or_insert_default();
            resources.requests.get_or_insert_default().insert(resource, quantity);
        })
    }

    /// Sets a resource limit: `limit("memory", "256Mi")`.
    pub fn limit(self, resource: impl Into<String>, quantity: impl Into<String>) -> Self {
        let (resource, quantity) = (resource.into(), Quantity(quantity.into()));
        self.but(|raw| {
            let resources = raw.resources.get_or_insert_default();
            resources.limits.get_or_insert_default().insert(resource, quantity);
        })
    }

    /// Declares a TCP port. If another container of the pod declares the same number, that is a collision.
    pub fn port(&mut self, name: impl Into<String>, number: u16) -> Port<'c, 'p> {
        let port = ContainerPort { name: Some(name.into()), container_port: number.into(), ..ContainerPort::default() };
        self.raw.ports.get_or_insert_default().push(port);
        Port::new(number, self.pod.brand)
    }

    /// Declares a TCP port with a free number: the first from `from` that no container has declared so far, and that the
    /// user's template does not probe. If the pod is in the node's network, the node's own programs do not listen on it
    /// either.
    ///
    /// The same template gets the same number, even if this was injected into it before. Declare ports with fixed numbers
    /// first: later declarations are not known yet.
    pub fn port_near(&mut self, name: impl Into<String>, from: u16) -> Port<'c, 'p> {
        let name = name.into();
        let number = self.pod.free_port(&self.raw, from).unwrap_or_else(|| {
            let path = format!("spec.{}[{}].ports[{name}]", K::PLACE.list(), self.raw.name);
            let found = format!("has no free number from {from} on");
            self.pod.problems().invalid(path, found, "start from a lower number");
            from
        });
        self.port(name, number)
    }

    /// Puts it into the pod.
    ///
    /// [`finish`](super::Injector::finish) reports what is invalid in the container itself (names, paths, duplicates).
    pub fn add(self) -> K::Added<'p> {
        let awaited = Awaited::new(self.raw.name.clone(), self.pod.brand);
        self.pod.add(K::PLACE, self.raw, self.waits_for);
        K::added(awaited)
    }
}

impl<'p, K: Ordered> Container<'_, 'p, K> {
    /// Starts the container only after `earlier` has ended or started.
    ///
    /// That is the case anyway, since containers start in the order in which they were added. This makes the compiler and
    /// [`finish`](super::Injector::finish) ensure that it stays so.
    pub fn after(mut self, earlier: &Awaited<'p>) -> Self {
        self.waits_for.push(earlier.name.clone());
        self
    }
}

impl<'c, 'p, K: LongRunning> Container<'c, 'p, K> {
    /// Adds a readiness probe: while it fails, the pod is not ready.
    pub fn readiness(self, probe: Probe<'c, 'p>) -> Self {
        self.but(|raw| raw.readiness_probe = Some(probe.raw))
    }

    /// Adds a liveness probe: when it fails, the container is restarted.
    pub fn liveness(self, probe: Probe<'c, 'p>) -> Self {
        self.but(|raw| raw.liveness_probe = Some(probe.raw))
    }
}

impl<'c, 'p> Container<'c, 'p, Sidecar> {
    /// Adds a startup probe: later containers start only after it has succeeded. When it fails, the container is restarted.
    pub fn startup(self, probe: Probe<'c, 'p>) -> Container<'c, 'p, StartedSidecar> {
        let Self { pod, mut raw, waits_for, .. } = self;
        raw.startup_probe = Some(probe.raw);
        Container { pod, raw, waits_for, kind: PhantomData }
    }
}

impl<'c, 'p> Container<'c, 'p, Plain> {
    /// Adds a startup probe: other probes run only after it has succeeded. No container waits for it.
    pub fn startup(self, probe: Probe<'c, 'p>) -> Self {
        self.but(|raw| raw.startup_probe = Some(probe.raw))
    }
}
