//! Renders a plan as containers beside those of a user.

use std::collections::HashMap;

use serde_json::{Value, json};
use trishanku_framework::inject::{
    Awaited, Claim, ConfigMapRef, Container, EmptyDir, FieldRef, Injector, JsonError, Kind, Pod, Probe as KubeletProbe,
    PullPolicy, ReadOnly, SecretRef, Security, StartedSidecar, Users, Volume, Writable, inject_json,
};

use crate::HeavenParts;
use crate::plan::{
    Content, EntryPoints, Folder, Images, Look, Mount, Place, Plan, PlanError, Ports, Probe, Probes, REPLICA, Run,
    Step, heaven, host_port, show,
};
use crate::workload::Replicas;

/// The user id of injected containers, which no image has a name for.
const USER: u32 = 65532;
const KUBECONFIG: &str = "trishanku-kubeconfig";
/// The preferred port of gitcd's status.
const STATUS_FROM: u16 = 2481;

/// The pods of a heaven.
#[derive(Clone, Debug, PartialEq)]
pub struct HeavenPod {
    /// Their template.
    pub template: Value,
    /// The port of gitcd's status: the value of the annotation [`STATUS_PORT`](crate::STATUS_PORT).
    pub status_port: u16,
}

/// An error in rendering the pods of a heaven.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PodError {
    /// The manifest is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The user's template conflicts with the injected containers.
    #[error("spec.{field}: {error}")]
    Template {
        /// The field with the template, below `spec`.
        field: &'static str,
        /// The conflicts.
        error: JsonError,
    },
    /// There is no template.
    #[error("spec.{0} is missing")]
    Missing(&'static str),
    /// The containers of an injected heaven have no user.
    #[error("spec.certificates.controller is missing, so there is no kubeconfig for the containers: set it")]
    NoUser,
}

/// Returns the pods of a heaven: its template, with the plan beside the containers of the user, on ports that those do not
/// use.
///
/// # Errors
/// [`PodError`] with the field and the solution.
pub fn of_heaven(
    parts: &HeavenParts<'_>,
    images: &Images,
    entry_points: &EntryPoints,
    replicas: Replicas,
) -> Result<HeavenPod, PodError> {
    let field = parts.pod_template_field;
    let storage = parts.gitcd.and_then(|gitcd| gitcd.storage.as_ref());
    let claim = storage.and_then(|storage| storage.volume_claim.as_ref());
    if let (Replicas::Named { has_claims: false, .. }, Some(claim)) = (replicas, claim) {
        let problem = "is a claim for one pod, but this kind of heaven has several, which cannot have claims of their \
                       own: remove volumeClaim, and push to a remote";
        let size = claim.size.as_ref().or(claim.name.as_ref()).map_or("", String::as_str);
        return Err(PlanError::value("gitcd.storage.volumeClaim", size, problem).into());
    }
    let users = parts.pod_template.ok_or(PodError::Missing(field))?;
    let wrong = |error| PodError::Template { field, error };
    let host = host_port(parts)?;
    let place = Place::pod().with_ports(ports(users, host).map_err(wrong)?).with_replica(replicas.field());
    let mut plan = heaven(parts, images, &place, entry_points)?;
    let Ports { gitcd, events, events_peers, apiserver } = place.ports;
    let taken: Vec<u16> = [gitcd, events, events_peers, apiserver].into_iter().chain(host).collect();
    let status_port = status_port(users, &taken).map_err(wrong)?;
    show(&mut plan, &place, status_port, &parts.certificates.kubernetes);
    let template = render(&plan, users).map_err(wrong)?;
    Ok(HeavenPod { template, status_port })
}

/// Renders a plan into a pod template.
///
/// The user's parts stay unchanged, including fields of newer Kubernetes versions. Rendering is idempotent.
///
/// # Errors
/// [`JsonError`] with all conflicts in the template, and their solutions.
pub fn render(plan: &Plan, template: &Value) -> Result<Value, JsonError> {
    let mut rendered = inject_json(template, |injector| injector.with(|pod| build(pod, plan)))?;
    let is_kept =
        plan.folders.iter().any(|folder| matches!(folder.content, Content::Kept { .. } | Content::KeptByReplica));
    if is_kept {
        // The volume belongs to root, so the containers need a group to write to it. The user's own setting wins.
        let spec = rendered["spec"].as_object_mut().expect("the rendered template has a spec");
        let context = spec.entry("securityContext").or_insert_with(|| json!({}));
        if let Some(context) = context.as_object_mut() {
            context.entry("fsGroup").or_insert_with(|| USER.into());
        }
    }
    Ok(rendered)
}

/// Chooses ports that neither the template uses nor `taken` contains. kube-apiserver's is fixed, since kubeconfigs
/// contain it.
///
/// # Errors
/// [`JsonError::Template`].
pub fn ports(template: &Value, taken: Option<u16>) -> Result<Ports, JsonError> {
    let mut ports = Ports::default();
    // Only computes ports; the injected result is dropped.
    let look = |injector: Injector| {
        injector.with(|pod| {
            let mut container = pod.container("trishanku-ports", "none");
            for number in taken.into_iter().chain([ports.apiserver]) {
                container.port(format!("t{number}"), number);
            }
            ports.events = container.port_near("a", ports.events).number();
            ports.events_peers = container.port_near("b", ports.events_peers).number();
            ports.gitcd = container.port_near("c", ports.gitcd).number();
            container.add();
        })
    };
    match inject_json(template, look) {
        // Rendering reports all other errors.
        Ok(_) | Err(JsonError::Inject(_)) => Ok(ports),
        Err(error) => Err(error),
    }
}

/// Chooses the port of gitcd's status: one that neither the template uses nor `taken` contains.
///
/// # Errors
/// [`JsonError::Template`].
pub fn status_port(template: &Value, taken: &[u16]) -> Result<u16, JsonError> {
    let mut found = STATUS_FROM;
    let look = |injector: Injector| {
        injector.with(|pod| {
            let mut container = pod.container("trishanku-ports", "none");
            for number in taken {
                container.port(format!("t{number}"), *number);
            }
            found = container.port_near("a", STATUS_FROM).number();
            container.add();
        })
    };
    match inject_json(template, look) {
        // Rendering reports all other errors.
        Ok(_) | Err(JsonError::Inject(_)) => Ok(found),
        Err(error) => Err(error),
    }
}

enum Handle<'p> {
    Read(Volume<'p, ReadOnly>),
    Write(Volume<'p, Writable>),
}

fn build<'p>(pod: &mut Pod<'p>, plan: &Plan) {
    let folders: HashMap<&str, Handle<'p>> =
        plan.folders.iter().map(|folder| (folder.name.as_str(), volume(pod, folder))).collect();
    let mut earlier: Option<Awaited<'p>> = None;
    // The repository has all objects, Secrets included, and the others have keys.
    for folder in folders.values() {
        match folder {
            Handle::Read(volume) => pod.keep_private(volume),
            Handle::Write(volume) => pod.keep_private(volume),
        }
    }
    for step in &plan.steps {
        match &step.run {
            Run::Once => {
                let container = described(pod.init(&step.name, &step.image.name), step, &folders, plan.replica);
                let container = match &earlier {
                    Some(earlier) => container.after(earlier),
                    None => container,
                };
                earlier = Some(container.add());
            }
            Run::Server(probes) => {
                let mut container = pod.sidecar(&step.name, &step.image.name);
                let port = probes.port.map(|(name, number)| container.port(name, number));
                let look = |probe: &Probe| kubelet(probe, port.as_ref());
                let container = described(container, step, &folders, plan.replica).startup(look(&probes.started));
                let mut container: Container<'_, 'p, StartedSidecar> = others(container, probes, look);
                if let Some(earlier) = &earlier {
                    container = container.after(earlier);
                }
                earlier = Some(container.add());
            }
            Run::Alone { alive } => {
                let container = described(pod.container(&step.name, &step.image.name), step, &folders, plan.replica);
                match alive {
                    Some(alive) => container.liveness(kubelet(alive, None)).add(),
                    None => container.add(),
                }
            }
        }
    }
    if let Some(kubeconfig) = &plan.kubeconfig {
        let secret = SecretRef::named(&kubeconfig.secret);
        let volume = pod.kubeconfig(KUBECONFIG, secret.key("kubeconfig"));
        if kubeconfig.has_folder {
            pod.give_kubeconfig(Users::All, &volume.in_folder(&kubeconfig.path));
        } else {
            pod.mount_kubeconfig(Users::All, &volume.as_file(&kubeconfig.path));
        }
    }
    if let Some(secret) = &plan.pull_secret {
        pod.pull_with(&SecretRef::named(secret));
    }
}

fn volume<'p>(pod: &mut Pod<'p>, folder: &Folder) -> Handle<'p> {
    let name = &folder.name;
    match &folder.content {
        Content::Empty { size_limit } => {
            let empty = size_limit.iter().fold(EmptyDir::new(), EmptyDir::size_limit);
            Handle::Write(pod.volume(name, empty))
        }
        Content::Memory => Handle::Write(pod.volume(name, EmptyDir::new().in_memory().size_limit("1Mi"))),
        Content::Kept { claim } => Handle::Write(pod.volume(name, Claim::named(claim))),
        // A StatefulSet replaces it by the claim of that name.
        Content::KeptByReplica => Handle::Write(pod.volume(name, EmptyDir::new())),
        Content::Secret { name: secret, items } => {
            let files = SecretRef::named(secret).files();
            Handle::Read(pod.volume(name, items.iter().fold(files, |files, (key, path)| files.item(*key, *path))))
        }
        // Scripts are executed directly, with the interpreter in their first line.
        Content::EntryPoints { name: map } => {
            Handle::Read(pod.volume(name, ConfigMapRef::named(map).files().mode(0o755)))
        }
    }
}

fn described<'c, 'p, K: Kind>(
    mut container: Container<'c, 'p, K>,
    step: &Step,
    folders: &HashMap<&str, Handle<'p>>,
    replica: Option<&'static str>,
) -> Container<'c, 'p, K> {
    container = container.command([&step.program]);
    let mut texts = step.arguments.iter().chain(step.environment.values());
    if let Some(field) = replica.filter(|_| texts.any(|text| text.contains(REPLICA))) {
        // Before the variables that refer to it.
        container = container.env("REPLICA", FieldRef::new(field));
    }
    let literal = |text: &str| literal(text, replica.is_some());
    if !step.arguments.is_empty() {
        container = container.args(step.arguments.iter().map(|argument| literal(argument)));
    }
    for (name, value) in &step.environment {
        container = container.env(name, literal(value));
    }
    for Mount { folder, path, writable } in &step.mounts {
        container = match folders.get(folder.as_str()) {
            Some(Handle::Write(volume)) if *writable => container.mount_writable(volume, path),
            Some(Handle::Write(volume)) => container.mount(volume, path),
            Some(Handle::Read(volume)) => container.mount(volume, path),
            None => unreachable!("a plan mounts its own folders"),
        };
    }
    for (resource, quantity) in &step.resources.requests {
        container = container.request(resource, quantity);
    }
    for (resource, quantity) in &step.resources.limits {
        container = container.limit(resource, quantity);
    }
    container = match step.image.pull {
        Some(trishanku_api::PullPolicy::Always) => container.pull_policy(PullPolicy::Always),
        Some(trishanku_api::PullPolicy::IfNotPresent) => container.pull_policy(PullPolicy::IfNotPresent),
        Some(trishanku_api::PullPolicy::Never) => container.pull_policy(PullPolicy::Never),
        None => container,
    };
    let security = Security::restricted().user(USER, USER);
    container.security(if step.writable_root { security.writable_root() } else { security })
}

/// Escapes `$(NAME)`, which kubelet would replace with a variable, except the placeholder of replicas where there is one.
fn literal(text: &str, has_replica: bool) -> String {
    let escaped = text.replace("$(", "$$(");
    if has_replica { escaped.replace(&format!("${REPLICA}"), REPLICA) } else { escaped }
}

fn others<'c, 'p>(
    mut container: Container<'c, 'p, StartedSidecar>,
    probes: &Probes,
    look: impl Fn(&Probe) -> KubeletProbe<'c, 'p>,
) -> Container<'c, 'p, StartedSidecar> {
    if let Some(alive) = &probes.alive {
        container = container.liveness(look(alive));
    }
    if let Some(ready) = &probes.ready {
        container = container.readiness(look(ready));
    }
    container
}

fn kubelet<'c, 'p>(probe: &Probe, port: Option<&trishanku_framework::inject::Port<'c, 'p>>) -> KubeletProbe<'c, 'p> {
    let look = match (&probe.look, port) {
        (Look::Https { path }, Some(port)) => KubeletProbe::https(port, *path),
        (Look::Https { .. }, None) => unreachable!("a server with a network probe has a port"),
        (Look::Run(words), _) => KubeletProbe::exec(words),
    };
    look.every(probe.every).timeout(probe.patience).failures(probe.failures)
}
