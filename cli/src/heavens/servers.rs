//! The plan's steps as processes: the servers of a heaven, and those of a merge.

use std::path::Path;
use std::time::Duration;

use trishanku_heaven_plan::plan::{self, Content, GIT_PRE, GITCD_CONFIG, HOME, Look, Plan, Run, Step};

use super::error::RenderError;
use super::manifest::Data;
use super::paths::Translation;
use super::render_context::RenderContext;
use super::secrets::{make_folder, write};
use super::site::Site;
use crate::plane::components::{Component, Invocation, Liveness, Probe, Trust};

/// A server without a probe counts as ready after this time.
const RUNNING: Duration = Duration::from_millis(500);
/// gitcd must commit the journal, and push.
const STORE_GRACE: Duration = Duration::from_mins(1);
const GRACE: Duration = Duration::from_secs(20);

/// Returns the plan's servers in order, each with the steps before it as preparation. Writes their folders and files.
///
/// # Errors
/// If a Secret is missing, or a file cannot be written.
pub(super) fn components(context: &RenderContext<'_>, site: &Site, plan: &Plan) -> Result<Vec<Component>, RenderError> {
    let mut components: Vec<Component> = Vec::new();
    let mut prepare = Vec::new();
    for folder in [Path::new(&site.place.home), &site.temporary()] {
        make_folder(folder)?;
    }
    let is_lease = |argument: &String| argument.starts_with("--writer-lease=");
    let waits = plan.steps.iter().any(|step| step.arguments.iter().any(is_lease));
    for step in &plan.steps {
        mount(context, site, plan, step)?;
        let program = context.program(&step.program, &step.image.name);
        let mut environment = step.environment.clone();
        // The supervisor retries instead, and reports why.
        environment.remove("GITCD_WAIT");
        let run = RenderContext::invocation(site, program, step.arguments.clone(), environment);
        let (port, probe, alive) = match &step.run {
            Run::Once => {
                prepare.push(run);
                continue;
            }
            Run::Alone { alive } => {
                let alive = alive.as_ref().map(|alive| liveness(context, site, step, alive));
                (None, Probe::Running(RUNNING), alive)
            }
            Run::Server(probes) => {
                let alive = probes.alive.as_ref().map(|alive| liveness(context, site, step, alive));
                (Some(site.port(&step.name)), look(context, site, step, &probes.started.look), alive)
            }
        };
        let name = site.component(&step.name);
        components.push(Component {
            log: context.home.log(&name),
            port: port.filter(|port| *port > 0),
            after: components.last().map(|before| before.name.clone()).into_iter().collect(),
            prepare: std::mem::take(&mut prepare),
            prepare_again: true,
            is_essential: true,
            // kube-apiserver may start against a hot standby, and becomes ready with its turn.
            takes_turns: waits && matches!(step.name.as_str(), "gitcd" | "kube-apiserver"),
            run,
            probe,
            alive,
            grace: if step.name == "gitcd" { STORE_GRACE } else { GRACE },
            name,
        });
    }
    Ok(components)
}

fn liveness(context: &RenderContext<'_>, site: &Site, step: &Step, probe: &plan::Probe) -> Liveness {
    let probe_of = look(context, site, step, &probe.look);
    Liveness { probe: probe_of, every: probe.every, failures: probe.failures }
}

fn look(context: &RenderContext<'_>, site: &Site, step: &Step, look: &Look) -> Probe {
    match look {
        Look::Run(words) => {
            let program = context.program(&words[0], &step.image.name);
            let run: Invocation =
                RenderContext::invocation(site, program, words[1..].to_vec(), step.environment.clone());
            Probe::Run(run)
        }
        // The server must have the certificate of the Secret that is mounted for it.
        Look::Https { path } => {
            let authority = Path::new(&site.place.secrets).join("kubernetes/ca.crt");
            let port = site.place.ports.apiserver;
            Probe::Http { port, path: (*path).to_owned(), trust: Trust::Authority(authority) }
        }
    }
}

/// Writes the files of a step to the paths where it reads them.
fn mount(context: &RenderContext<'_>, site: &Site, plan: &Plan, step: &Step) -> Result<(), RenderError> {
    for mount in &step.mounts {
        let folder = plan.folders.iter().find(|folder| folder.name == mount.folder);
        let folder = folder.expect("a plan mounts its own folders");
        let path = Path::new(&mount.path);
        match &folder.content {
            Content::Secret { name, items } => {
                let user = format!("{}/{}", site.name, step.name);
                let data = kubeconfigs(site, context.secrets.get(name, &user)?);
                let all = || data.keys().map(|key| (key.as_str(), key.as_str())).collect();
                let items: Vec<(&str, &str)> = if items.is_empty() { all() } else { items.clone() };
                make_folder(path)?;
                for (key, file) in items {
                    if let Some(content) = data.get(key) {
                        write(&path.join(file), content, 0o600)?;
                        context.shows(site, name, key, path.join(file), false);
                    }
                }
            }
            Content::EntryPoints { name } => {
                let data = context.config_maps.get(name).cloned().unwrap_or_default();
                for key in [GIT_PRE, GITCD_CONFIG] {
                    if let Some(content) = data.get(key) {
                        write(&path.join(key), content, 0o700)?;
                    }
                }
            }
            // The system's own temporary folder; the programs use another one, by `TMPDIR`.
            Content::Empty { .. } if path == Path::new("/tmp") => {}
            // An emptyDir lasts as long as a run. The repository's folder stays, since it has the data.
            Content::Empty { .. } if folder.name != HOME => {
                let _not_there = std::fs::remove_dir_all(path);
                make_folder(path)?;
            }
            Content::Empty { .. } | Content::Memory | Content::Kept { .. } | Content::KeptByReplica => {
                make_folder(path)?;
            }
        }
    }
    Ok(())
}

/// The values of a Secret; a kubeconfig in it is changed to this heaven's kube-apiserver.
pub(super) fn kubeconfigs(site: &Site, mut data: Data) -> Data {
    if let Some(kubeconfig) = data.get_mut("kubeconfig")
        && let Ok(text) = std::str::from_utf8(kubeconfig)
    {
        *kubeconfig = translation(site).of(text).into_bytes();
    }
    data
}

/// The mapping of this heaven's servers.
pub(super) fn translation(site: &Site) -> Translation {
    let (there, here) = (trishanku_heaven_plan::plan::Ports::default(), site.place.ports);
    let mut translation = Translation::default();
    translation.server(there.apiserver, here.apiserver);
    translation.server(there.gitcd, here.gitcd);
    translation.server(there.events, here.events);
    translation
}
