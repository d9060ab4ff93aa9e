//! Program, environment, mounts, permissions and resources of a container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::Container;
use crate::inject::env::{EnvFrom, EnvValue};
use crate::inject::kind::Kind;
use crate::inject::kubeconfig::MountedKubeconfig;
use crate::inject::security::Security;
use crate::inject::volume::{Access, Volume, Writable};

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

type Quantities = Option<BTreeMap<String, Quantity>>;

impl<'p, K: Kind> Container<'_, 'p, K> {
    /// Sets when kubelet pulls the image, once.
    pub fn pull_policy(self, policy: PullPolicy) -> Self {
        self.once("imagePullPolicy", format!("{policy:?}"), |raw| &mut raw.image_pull_policy)
    }

    /// Sets the command, which replaces the image's entry point, once.
    pub fn command<S: Into<String>>(self, command: impl IntoIterator<Item = S>) -> Self {
        let command = command.into_iter().map(Into::into).collect();
        self.once("command", command, |raw| &mut raw.command)
    }

    /// Adds arguments. Kubernetes replaces `$(NAME)` in them with the variable of that name. Do not put secrets here.
    pub fn args<S: Into<String>>(self, args: impl IntoIterator<Item = S>) -> Self {
        self.but(|raw| raw.args.get_or_insert_default().extend(args.into_iter().map(Into::into)))
    }

    /// Sets the working directory, which replaces the image's, once.
    pub fn working_dir(self, path: impl Into<String>) -> Self {
        self.once("workingDir", path.into(), |raw| &mut raw.working_dir)
    }

    /// Adds an environment variable: a literal, a [`SecretKey`](crate::inject::SecretKey), a
    /// [`ConfigMapKey`](crate::inject::ConfigMapKey), a [`FieldRef`](crate::inject::FieldRef), a
    /// [`ResourceFieldRef`](crate::inject::ResourceFieldRef). Each name can be added once.
    pub fn env(self, name: impl Into<String>, value: impl Into<EnvValue>) -> Self {
        let EnvValue { literal, source } = value.into();
        let variable = EnvVar { name: name.into(), value: literal, value_from: source };
        self.but(|raw| raw.env.get_or_insert_default().push(variable))
    }

    /// Adds all values of a Secret or a `ConfigMap` as environment variables. If two have the same name, the last one
    /// counts, and [`env`](Self::env) counts before all of them.
    pub fn env_from(self, source: impl Into<EnvFrom>) -> Self {
        let source = source.into().source();
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

    /// Sets the permissions, once; by default [`Security::restricted`].
    pub fn security(mut self, security: impl Into<Security>) -> Self {
        if self.unadded.has_security {
            self.unadded.set_twice("securityContext");
            return self;
        }
        self.unadded.has_security = true;
        self.but(|raw| raw.security_context = Some(security.into().context))
    }

    /// Sets the request of a resource, once: `request("cpu", "100m")`.
    ///
    /// [`finish`](crate::inject::Injector::finish) reports quantities that an API server would reject: invalid and negative
    /// ones, and requests above the limit.
    pub fn request(self, resource: impl Into<String>, quantity: impl Into<String>) -> Self {
        self.resource("requests", resource.into(), quantity.into(), |resources| &mut resources.requests)
    }

    /// Sets the limit of a resource, once: `limit("memory", "256Mi")`. Checked as a [`request`](Self::request).
    pub fn limit(self, resource: impl Into<String>, quantity: impl Into<String>) -> Self {
        self.resource("limits", resource.into(), quantity.into(), |resources| &mut resources.limits)
    }

    fn resource(
        mut self,
        field: &str,
        resource: String,
        quantity: String,
        slot: impl FnOnce(&mut ResourceRequirements) -> &mut Quantities,
    ) -> Self {
        let resources = self.unadded.raw.resources.get_or_insert_default();
        let quantities = slot(resources).get_or_insert_default();
        let at = format!("resources.{field}[{resource}]");
        if quantities.insert(resource, Quantity(quantity)).is_some() {
            self.unadded.set_twice(&at);
        }
        self
    }
}
