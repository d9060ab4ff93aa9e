//! The containers of a user's pod as processes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{self as core, Container, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;
use trishanku_heaven_plan::plan::Kubeconfig;

use super::check;
use super::environment;
use super::error::RenderError;
use super::images::{Entry, Health, is_pause};
use super::paths::Translation;
use super::render_context::RenderContext;
use super::secrets::write;
use super::servers::{kubeconfigs, translation};
use super::site::Site;
use super::volumes;
use crate::plane::components::{Component, Invocation, Liveness, Probe, Trust};

/// A container without any probe counts as ready after this time.
const RUNNING: Duration = Duration::from_secs(1);
/// The default in Kubernetes.
const GRACE: Duration = Duration::from_secs(30);

/// A user's pod.
pub(super) struct UsersPod {
    spec: PodSpec,
    heaven: String,
}

impl UsersPod {
    pub(super) fn read(heaven: &str, template: &Value) -> Result<Self, RenderError> {
        let template: PodTemplateSpec = serde_json::from_value(template.clone())
            .map_err(|error| RenderError::Template { of: format!("heaven {heaven:?}"), reason: error.to_string() })?;
        let pod = Self { spec: template.spec.unwrap_or_default(), heaven: heaven.to_owned() };
        let wrong = |reason| RenderError::Template { of: format!("heaven {heaven:?}"), reason };
        pod.check().map_err(wrong)?;
        Ok(pod)
    }

    /// Checks names that become folders, processes and logs.
    fn check(&self) -> Result<(), String> {
        for (at, volume) in self.spec.volumes.iter().flatten().enumerate() {
            check::label(&format!("spec.volumes[{at}].name"), &volume.name)?;
        }
        let init = self.spec.init_containers.iter().flatten().enumerate().map(|of| ("initContainers", of));
        let all = init.chain(self.spec.containers.iter().enumerate().map(|of| ("containers", of)));
        for (field, (at, container)) in all {
            check::label(&format!("spec.{field}[{at}].name"), &container.name)?;
            for mount in container.volume_mounts.iter().flatten() {
                if let Some(below) = mount.sub_path.as_deref().filter(|below| !below.is_empty()) {
                    check::inside(&format!("spec.{field}[{at}].volumeMounts: subPath"), below)?;
                }
            }
        }
        Ok(())
    }

    fn containers(&self) -> impl Iterator<Item = &Container> {
        self.spec.init_containers.iter().flatten().chain(&self.spec.containers)
    }

    /// The ports to allot: one for each container, and those that containers declare.
    pub(super) fn port_names(&self) -> Vec<String> {
        let declared = |container: &Container| {
            let of = |port: &core::ContainerPort| declared(&container.name, port.container_port);
            container.ports.iter().flatten().map(of).collect::<Vec<_>>()
        };
        self.containers().flat_map(|container| [vec![container.name.clone()], declared(container)].concat()).collect()
    }

    /// Returns the processes, each after `before`. Writes the folders and files of the volumes.
    ///
    /// # Errors
    /// See [`RenderError`].
    pub(super) fn components(
        &self,
        context: &RenderContext<'_>,
        site: &Site,
        kubeconfig: Option<&Kubeconfig>,
        before: Option<&str>,
    ) -> Result<Vec<Component>, RenderError> {
        let all = self.translation(site, kubeconfig, None)?;
        for volume in self.spec.volumes.iter().flatten() {
            volumes::fill(context, site, volume, &all)?;
        }
        if let Some(Kubeconfig { secret, path, .. }) = kubeconfig {
            let user = format!("heaven {:?}", self.heaven);
            let data = kubeconfigs(site, context.secrets.get(secret, &user)?);
            if let Some(content) = data.get("kubeconfig") {
                write(&kubeconfig_file(site, path), content, 0o600)?;
                context.shows(site, secret, "kubeconfig", kubeconfig_file(site, path), true);
            }
        }
        let mut components: Vec<Component> = Vec::new();
        let mut after: Vec<String> = before.map(ToOwned::to_owned).into_iter().collect();
        let mut prepare = Vec::new();
        for container in self.spec.init_containers.iter().flatten() {
            let Some(component) = self.component(context, site, kubeconfig, container)? else { continue };
            if container.restart_policy.as_deref() == Some("Always") {
                // A native sidecar: later containers wait for it.
                let ready = vec![component.name.clone()];
                let earlier = std::mem::replace(&mut after, ready);
                components.push(Component { after: earlier, prepare: std::mem::take(&mut prepare), ..component });
            } else {
                prepare.push(component.run);
            }
        }
        let sidecars = components.len();
        for container in &self.spec.containers {
            let Some(component) = self.component(context, site, kubeconfig, container)? else { continue };
            let mut after = after.clone();
            // Init containers run once, before the first container; the others wait for that one.
            let prepare = std::mem::take(&mut prepare);
            if prepare.is_empty()
                && let Some(first) = components.get(sidecars).filter(|first| !first.prepare.is_empty())
            {
                after.push(first.name.clone());
            }
            components.push(Component { after, prepare, ..component });
        }
        Ok(components)
    }

    /// The mapping of paths and ports for one container, or for files that all of them read.
    fn translation(
        &self,
        site: &Site,
        kubeconfig: Option<&Kubeconfig>,
        only: Option<&Container>,
    ) -> Result<Translation, RenderError> {
        let mut known = translation(site);
        let of = |container: &Container| only.is_none_or(|only| only.name == container.name);
        for container in self.containers().filter(|container| of(container)) {
            for mount in container.volume_mounts.iter().flatten() {
                let volume = self.spec.volumes.iter().flatten().find(|volume| volume.name == mount.name);
                let Some(volume) = volume else {
                    let reason = format!("container {:?} mounts {:?}: no such volume", container.name, mount.name);
                    return Err(RenderError::Template { of: format!("heaven {:?}", self.heaven), reason });
                };
                let folder = volumes::folder(site, volume);
                let here = mount.sub_path.as_deref().map_or(folder.clone(), |below| folder.join(below));
                known.path(&mount.mount_path, &here);
            }
            for port in container.ports.iter().flatten().map(|port| port.container_port) {
                if let Ok(number) = u16::try_from(port) {
                    known.port(number, site.port(&declared(&container.name, port)));
                }
            }
        }
        if let Some(kubeconfig) = kubeconfig {
            known.path(&kubeconfig.path, &kubeconfig_file(site, &kubeconfig.path));
        }
        let place = &site.place;
        for (there, here) in [
            ("/root", &place.home),
            ("/.trishanku/secrets", &place.secrets),
            ("/.trishanku/entrypoints", &place.entry_points),
            ("/.trishanku/state", &place.state),
        ] {
            known.path(there, Path::new(here));
        }
        Ok(known)
    }

    /// Renders one container; `None` for a pause container. The caller sets the components before it.
    fn component(
        &self,
        context: &RenderContext<'_>,
        site: &Site,
        kubeconfig: Option<&Kubeconfig>,
        container: &Container,
    ) -> Result<Option<Component>, RenderError> {
        let image = container.image.clone().unwrap_or_default();
        let of = format!("heaven {:?}, container {:?}", self.heaven, container.name);
        let Some(entry) = context.images.find(&image, context.assets) else {
            if is_pause(&image) {
                return Ok(None);
            }
            return Err(RenderError::NoProgram { of, image });
        };
        let translation = self.translation(site, kubeconfig, Some(container))?;
        let variables = environment::of(context, site, container, &translation, &of)?;
        let expanded = |text: &String| environment::expand_here(text, &variables, &translation);
        let mut words: Vec<String> = container.command.iter().flatten().map(&expanded).collect();
        let first = (!words.is_empty()).then(|| words.remove(0));
        let program = program(&entry, first.as_deref(), site, &of, &image)?;
        words.extend(container.args.iter().flatten().map(&expanded));
        let port = site.port(&container.name);
        for added in &entry.args {
            let flag = added.split('=').next().unwrap_or_default();
            if !words
                .iter()
                .any(|word| word == flag || word.strip_prefix(flag).is_some_and(|rest| rest.starts_with('=')))
            {
                words.push(added.replace("$(PORT)", &port.to_string()));
            }
        }
        let environment = variables.iter().map(|(name, value)| (name.clone(), value.value(&translation)));
        let mut run = RenderContext::invocation(site, program, words, environment);
        if let Some(folder) = &container.working_dir {
            run.folder = Some(translation.of(folder).into()).filter(|folder: &PathBuf| folder.is_dir());
        }
        let ask = |probe: &core::Probe| asked(site, container, probe, &translation, &run);
        let probes = [&container.startup_probe, &container.readiness_probe];
        let own_probe = probes.into_iter().flatten().find_map(&ask);
        let probe = own_probe.or_else(|| entry.health.as_ref().map(|health| usual(health, &run, port)));
        let alive = container.liveness_probe.as_ref().and_then(|probe| {
            Some(Liveness {
                probe: ask(probe)?,
                every: Duration::from_secs(u64::try_from(probe.period_seconds.unwrap_or(10)).unwrap_or(10).max(1)),
                failures: u16::try_from(probe.failure_threshold.unwrap_or(3)).unwrap_or(3).max(1),
            })
        });
        let name = site.component(&container.name);
        let listens = container
            .ports
            .iter()
            .flatten()
            .next()
            .map(|port| site.port(&declared(&container.name, port.container_port)));
        let uses_port = run.args.iter().any(|arg| arg.to_string_lossy().ends_with(&format!("={port}")));
        let grace = self.spec.termination_grace_period_seconds.and_then(|grace| u64::try_from(grace).ok());
        Ok(Some(Component {
            log: context.home.log(&name),
            port: listens.or(uses_port.then_some(port)),
            after: Vec::new(),
            prepare: Vec::new(),
            prepare_again: true,
            is_essential: false,
            takes_turns: false,
            run,
            probe: probe.unwrap_or(Probe::Running(RUNNING)),
            alive,
            grace: grace.map_or(GRACE, Duration::from_secs),
            name,
        }))
    }
}

/// The name of a declared port among the allotted ones.
fn declared(container: &str, port: i32) -> String {
    format!("{container}:{port}")
}

fn kubeconfig_file(site: &Site, path: &str) -> PathBuf {
    let name = Path::new(path).file_name().unwrap_or_default();
    site.dir.join("controller").join(name)
}

/// The program to run: the container's command if it is a file of this heaven, otherwise the one for the image.
fn program(entry: &Entry, first: Option<&str>, site: &Site, of: &str, image: &str) -> Result<PathBuf, RenderError> {
    if let Some(own) = first.map(Path::new).filter(|own| own.starts_with(&site.dir) && own.is_file()) {
        return Ok(own.into());
    }
    let mut program = entry.program.clone();
    if program.is_dir() {
        program = program.join(first.map(Path::new).and_then(Path::file_name).unwrap_or_default());
    }
    // The system searches a bare name in PATH.
    let is_path = program.components().count() > 1;
    if is_path && !program.is_file() {
        return Err(RenderError::ProgramNotFound { of: of.to_owned(), image: image.to_owned(), program });
    }
    // Absolute, since it runs in another folder.
    Ok(if is_path { std::path::absolute(&program).unwrap_or(program) } else { program })
}

/// The readiness probe of a known image, at the port that its arguments set, or at its own one.
fn usual(health: &Health, run: &Invocation, port: u16) -> Probe {
    let own = |flag: &str| {
        let mut found = run.args.iter().rev().filter_map(|arg| arg.to_str()?.strip_prefix(flag)?.parse().ok());
        found.next()
    };
    let port = own("--secure-port=").unwrap_or(port);
    match health {
        Health::Http(path) => Probe::Http { port, path: path.clone(), trust: Trust::Plain },
        Health::Https(path) => Probe::Http { port, path: path.clone(), trust: Trust::Anybody },
    }
}

/// A probe of kubelet; `None` if its kind is not supported.
fn asked(
    site: &Site,
    container: &Container,
    probe: &core::Probe,
    translation: &Translation,
    run: &Invocation,
) -> Option<Probe> {
    let number = |port: &IntOrString| match port {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(name) => {
            let known = container.ports.iter().flatten().find(|port| port.name.as_ref() == Some(name));
            known.and_then(|port| u16::try_from(port.container_port).ok())
        }
    };
    if let Some(get) = &probe.http_get {
        let trust = if get.scheme.as_deref() == Some("HTTPS") { Trust::Anybody } else { Trust::Plain };
        let path = get.path.clone().unwrap_or_else(|| "/".to_owned());
        return Some(Probe::Http { port: translation.port_of(number(&get.port)?), path, trust });
    }
    if let Some(socket) = &probe.tcp_socket {
        return Some(Probe::Connect(translation.port_of(number(&socket.port)?)));
    }
    let words = probe.exec.as_ref()?.command.clone()?;
    let (first, rest) = words.split_first()?;
    let rest = rest.iter().map(|word| translation.of(word));
    let ask = RenderContext::invocation(site, translation.of(first).into(), rest, BTreeMap::new());
    Some(Probe::Run(Invocation { environment: run.environment.clone(), ..ask }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_that_leads_out_of_its_folder_is_refused_before_anything_is_made() {
        for (spec, expected) in [
            (json!({"containers": [], "volumes": [{"name": "../root"}]}), "spec.volumes[0].name \"../root\""),
            (json!({"containers": [], "volumes": [{"name": "/etc"}]}), "spec.volumes[0].name \"/etc\""),
            (json!({"containers": [], "volumes": [{"name": ""}]}), "spec.volumes[0].name \"\""),
            (json!({"containers": [{"name": "a"}, {"name": "a/b"}]}), "spec.containers[1].name \"a/b\""),
            (json!({"containers": [], "initContainers": [{"name": ".."}]}), "spec.initContainers[0].name \"..\""),
            (
                json!({"containers": [{"name": "a", "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "../x"}]}]}),
                "spec.containers[0].volumeMounts: subPath",
            ),
        ] {
            let said = UsersPod::read("h", &json!({"spec": spec})).err().unwrap().to_string();
            assert!(said.contains("heaven \"h\"") && said.contains(expected), "{said}");
        }
    }
}
