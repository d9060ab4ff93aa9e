//! Random injections. Most of their values are valid, and some are not.

use std::time::Duration;

use k8s_openapi::api::core::v1::SecurityContext;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;
use trishanku_framework::inject::{
    Claim, ConfigMapRef, Container, Csi, EmptyDir, EnvFrom, EphemeralClaim, FieldRef, FsGroupChangePolicy, HostPath,
    HostPathType, HttpGet, Kind, LifecycleHook, LongRunning, Pod, PodSecurity, Port, Probe, Projected, PullPolicy,
    ReadOnly, ResourceFieldRef, SecretRef, Security, Users, Volume, Writable,
};

#[derive(Clone, Debug)]
pub(super) struct Injection {
    label: Option<(&'static str, &'static str)>,
    annotation: Option<&'static str>,
    group: Option<u32>,
    sysctl: Option<(&'static str, &'static str)>,
    kubeconfig: Option<&'static str>,
    volumes: Vec<Source>,
    containers: Vec<Plan>,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    EmptyDir(&'static str),
    Secret,
    ConfigMap,
    Projected,
    Claim,
    ReadOnlyClaim,
    Ephemeral(&'static str),
    Csi,
    ReadOnlyCsi,
    HostPath(&'static str),
    WritableHostPath,
}

#[derive(Clone, Debug)]
struct Plan {
    run: u8,
    name: &'static str,
    variables: Vec<(&'static str, u8)>,
    mounts: Vec<(usize, &'static str, &'static str, u8)>,
    ports: Vec<(u8, u16, Option<u16>)>,
    probes: [Option<u8>; 3],
    hooks: [Option<u8>; 2],
    resources: Vec<(bool, &'static str, &'static str)>,
    security: u8,
    is_raw: bool,
}

/// Draws the first value in seven of eight cases.
fn mostly<T: Clone + std::fmt::Debug + 'static>(valid: &[T], others: &[T]) -> impl Strategy<Value = T> + use<T> {
    prop_oneof![24 => select(valid.to_vec()), 1 => select(others.to_vec())]
}

pub(super) fn injections() -> impl Strategy<Value = Injection> {
    let label = option::of(mostly(&[("team", "blue"), ("example.com/a", "")], &[("/a", "b"), ("a", "b c")]));
    let annotation = option::of(mostly(&["note", "example.com/Note"], &["a b"]));
    let group = option::of(mostly(&[65532, 7], &[u32::MAX]));
    let sysctl = mostly(&[("net.ipv4.tcp_syncookies", "1"), ("kernel.shm_rmid_forced", "0")], &[("Bad name", "1")]);
    let kubeconfig = option::of(mostly(&["/var/run/heaven", "/kubeconfig"], &["relative", "/a:b"]));
    (label, annotation, group, option::weighted(0.2, sysctl), kubeconfig, vec(source(), 1..4), vec(plan(), 1..4))
        .prop_map(|(label, annotation, group, sysctl, kubeconfig, volumes, mut containers)| {
            for (plan, name) in containers.iter_mut().zip(["c0", "c1", "c2"]).filter(|(plan, _)| plan.name.is_empty()) {
                plan.name = name;
            }
            Injection { label, annotation, group, sysctl, kubeconfig, volumes, containers }
        })
}

fn source() -> impl Strategy<Value = Source> {
    let valid = [
        Source::EmptyDir("1Gi"),
        Source::EmptyDir("0.5Mi"),
        Source::Secret,
        Source::ConfigMap,
        Source::Projected,
        Source::Claim,
        Source::ReadOnlyClaim,
        Source::Ephemeral("1Gi"),
        Source::Csi,
        Source::ReadOnlyCsi,
        Source::HostPath("/var/log"),
        Source::WritableHostPath,
    ];
    mostly(&valid, &[Source::EmptyDir("-1"), Source::EmptyDir("x"), Source::Ephemeral("0"), Source::HostPath("/../a")])
}

fn plan() -> impl Strategy<Value = Plan> {
    let name = mostly(&[""], &["proxy", "-bad", "app", "c1"]);
    let variable = (mostly(&["A", "B", "C.D", "E"], &["A=B", ""]), 0..10_u8);
    let path = mostly(&["/a", "/a/b", "/data", "/etc/app/x", "/v", "/w/", "/x"], &["a", "/a:b"]);
    let sub_path = mostly(&["", "", "sub", "sub/$(POD)"], &["../up", "/abs", "$(GONE)"]);
    let port = (
        0..3_u8,
        mostly(&[53, 81, 5300, 8080, 9000, 9100], &[0, 80]),
        option::weighted(0.2, select(vec![53, 9000, 30000])),
    );
    let resource = select(vec!["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu", "disk"]);
    let quantity = mostly(&["1", "2", "1000m", "64Mi", "2Mi", "0", "1e3", "1.5Gi"], &["-1", "much", "100n"]);
    let probe = || option::weighted(0.4, 0..8_u8);
    let hook = || option::weighted(0.3, 0..5_u8);
    (
        (0..3_u8, name, vec(variable, 0..3), vec((0..4_usize, path, sub_path, 0..6_u8), 0..3)),
        (vec(port, 0..3), [probe(), probe(), probe()], [hook(), hook()]),
        (option::weighted(0.2, vec((any::<bool>(), resource, quantity), 1..3)), 0..4_u8, any::<bool>()),
    )
        .prop_map(|((run, name, variables, mounts), (ports, probes, hooks), (resources, security, is_raw))| {
            let resources = resources.unwrap_or_default();
            Plan { run, name, variables, mounts, ports, probes, hooks, resources, security, is_raw }
        })
}

enum Handle<'p> {
    Read(Volume<'p, ReadOnly>),
    Write(Volume<'p, Writable>),
}

impl Source {
    fn add<'p>(self, pod: &mut Pod<'p>, name: String) -> Handle<'p> {
        let secret = SecretRef::named("s");
        match self {
            Self::EmptyDir(limit) => Handle::Write(pod.volume(name, EmptyDir::new().in_memory().size_limit(limit))),
            Self::Secret => Handle::Read(pod.volume(name, secret.files().item("a", "b/c").mode(0o400).optional())),
            Self::ConfigMap => Handle::Read(pod.volume(name, ConfigMapRef::named("m").files())),
            Self::Projected => {
                let files = Projected::new().files(secret.files()).token("token", Some("heaven"));
                Handle::Read(pod.volume(name, files.field("labels", FieldRef::new("metadata.labels"))))
            }
            Self::Claim => Handle::Write(pod.volume(name, Claim::named("claim"))),
            Self::ReadOnlyClaim => Handle::Read(pod.volume(name, Claim::named("claim").read_only())),
            Self::Ephemeral(size) => {
                Handle::Write(pod.volume(name, EphemeralClaim::new(size).storage_class("fast").label("a", "b")))
            }
            Self::Csi => Handle::Write(pod.volume(name, Csi::driver("csi.example.com").fs_type("ext4"))),
            Self::ReadOnlyCsi => {
                let csi = Csi::driver("csi.example.com").attribute("a", "b").node_publish_secret(&secret);
                Handle::Read(pod.volume(name, csi.read_only()))
            }
            Self::HostPath(path) => Handle::Read(pod.volume(name, HostPath::dangerous(path))),
            Self::WritableHostPath => {
                let path = HostPath::dangerous("/var/lib/heaven").of_type(HostPathType::DirectoryOrCreate);
                Handle::Write(pod.volume(name, path.writable()))
            }
        }
    }
}

impl Injection {
    pub(super) fn build(&self, pod: &mut Pod<'_>) {
        if let Some((key, value)) = self.label {
            pod.label(key, value);
        }
        if let Some(key) = self.annotation {
            pod.annotation(key, "any Value!");
        }
        if let Some(group) = self.group {
            let security = PodSecurity::new().fs_group(group).supplemental_group(group);
            pod.security(security.fs_group_change_policy(FsGroupChangePolicy::OnRootMismatch));
        }
        if let Some((name, value)) = self.sysctl {
            pod.security(PodSecurity::new().sysctl(name, value));
        }
        let volumes: Vec<_> =
            self.volumes.iter().enumerate().map(|(index, source)| source.add(pod, format!("v{index}"))).collect();
        for plan in &self.containers {
            plan.build(pod, &volumes);
        }
        if let Some(path) = self.kubeconfig {
            let kubeconfig = pod.kubeconfig("kubeconfig", SecretRef::named("app").key("kubeconfig").optional());
            pod.give_kubeconfig(Users::All, &kubeconfig.in_folder(path));
        }
    }
}

impl Plan {
    fn build<'p>(&self, pod: &mut Pod<'p>, volumes: &[Handle<'p>]) {
        match self.run {
            0 => {
                let mut container = pod.init(self.name, "init:1");
                let ports = self.ports(&mut container);
                self.described(container, volumes, &ports).add();
            }
            1 => {
                let mut container = pod.sidecar(self.name, "sidecar:1");
                let ports = self.ports(&mut container);
                let container = self.watched(self.described(container, volumes, &ports), &ports.tcp);
                match self.probes[0] {
                    Some(probe) => drop(container.startup(look(probe, &ports.tcp)).add()),
                    None => container.add(),
                }
            }
            _ => {
                let mut container = pod.container(self.name, "plain:1");
                let ports = self.ports(&mut container);
                let container = self.watched(self.described(container, volumes, &ports), &ports.tcp);
                match self.probes[0] {
                    Some(probe) => container.startup(look(probe, &ports.tcp)).add(),
                    None => container.add(),
                }
            }
        }
    }

    fn ports<'c, 'p, K: Kind>(&self, container: &mut Container<'c, 'p, K>) -> Ports<'c, 'p> {
        let mut ports = Ports { tcp: Vec::new(), udp: Vec::new() };
        for (index, (protocol, number, _)) in self.ports.iter().enumerate() {
            let name = format!("{}-{index}", self.name);
            match protocol {
                0 => ports.tcp.push(container.port(name, *number)),
                1 => ports.udp.push(container.udp_port(name, *number)),
                _ => ports.tcp.push(container.port_near(name, *number)),
            }
        }
        ports
    }

    fn described<'c, 'p, K: Kind>(
        &self,
        mut container: Container<'c, 'p, K>,
        volumes: &[Handle<'p>],
        ports: &Ports<'c, 'p>,
    ) -> Container<'c, 'p, K> {
        for (name, value) in &self.variables {
            container = variable(container, name, *value);
        }
        if self.mounts.iter().any(|(_, _, sub_path, _)| sub_path.contains("$(POD)")) {
            container = container.env("POD", FieldRef::new("metadata.name"));
        }
        for (volume, path, sub_path, how) in &self.mounts {
            container = match &volumes[volume % volumes.len()] {
                Handle::Write(volume) => match how {
                    0 => container.mount_writable(&volume.host_to_container(), *path),
                    1 => container.mount(&volume.recursive_read_only(), *path),
                    2 => container.mount(&volume.host_to_container().sub_path("a"), *path),
                    3 => container.mount(&inside(volume, sub_path), *path),
                    _ => container.mount_writable(&inside(volume, sub_path), *path),
                },
                Handle::Read(volume) if *how == 0 => container.mount(&volume.recursive_read_only(), *path),
                Handle::Read(volume) => container.mount(&inside(volume, sub_path), *path),
            };
        }
        let host_ports = self.ports.iter().filter_map(|(_, _, host_port)| *host_port);
        for (port, host_port) in ports.tcp.iter().zip(host_ports.clone()) {
            container = container.host_port(port, host_port);
        }
        for (port, host_port) in ports.udp.iter().zip(host_ports) {
            container = container.host_port(port, host_port);
        }
        for (is_limit, resource, quantity) in &self.resources {
            container =
                if *is_limit { container.limit(*resource, *quantity) } else { container.request(*resource, *quantity) };
        }
        // The API server of the tests forbids privileged containers, and with them bidirectional mounts.
        container = match self.security {
            0 => container.security(SecurityContext { run_as_user: Some(0), ..SecurityContext::default() }),
            1 => container.security(Security::restricted().user(65532, 65532).writable_root()),
            _ => container,
        };
        if self.is_raw {
            return container.pull_policy(PullPolicy::Always).command(["$(A)"]).working_dir("/").raw(|raw| {
                raw.tty = Some(false);
                raw.stdin = Some(true);
                raw.termination_message_path = Some("/tmp/end".to_owned());
                raw.env
                    .get_or_insert_default()
                    .push(serde_json::from_value(json!({"name": "RAW", "value": "1"})).unwrap());
            });
        }
        container.args([""; 0])
    }

    fn watched<'c, 'p, K: LongRunning>(
        &self,
        mut container: Container<'c, 'p, K>,
        ports: &[Port<'c, 'p>],
    ) -> Container<'c, 'p, K> {
        if let Some(probe) = self.probes[1] {
            container = match probe {
                0 | 1 => container.readiness(look(probe, ports).successes(3)),
                _ => container.readiness(look(probe, ports)),
            };
        }
        if let Some(probe) = self.probes[2] {
            container = match probe {
                0 | 1 => container.liveness(look(probe, ports).termination_grace_period(Duration::from_secs(9))),
                _ => container.liveness(look(probe, ports)),
            };
        }
        if let Some(kind) = self.hooks[0] {
            container = container.post_start(hook(kind, ports));
        }
        if let Some(kind) = self.hooks[1] {
            container = container.pre_stop(hook(kind, ports));
        }
        container
    }
}

struct Ports<'c, 'p> {
    tcp: Vec<Port<'c, 'p>>,
    udp: Vec<Port<'c, 'p, trishanku_framework::inject::Udp>>,
}

fn inside<'p, A: trishanku_framework::inject::Access>(volume: &Volume<'p, A>, path: &str) -> Volume<'p, A> {
    match path {
        "" => volume.clone(),
        path if path.contains('$') => volume.sub_path_expr(path),
        path => volume.sub_path(path),
    }
}

fn variable<'c, 'p, K: Kind>(container: Container<'c, 'p, K>, name: &str, value: u8) -> Container<'c, 'p, K> {
    let (secret, map) = (SecretRef::named("s"), ConfigMapRef::named("m"));
    match value {
        0 => container.env(name, ""),
        1 => container.env(name, "$(A) and so on"),
        2 => container.env(name, secret.key("k").optional()),
        3 => container.env(name, map.key("k")),
        4 => container.env(name, FieldRef::new("status.podIP")),
        5 => container.env(name, ResourceFieldRef::limit("cpu").divisor("1m")),
        6 => container.env(name, ResourceFieldRef::request("memory").divisor("1000000")),
        7 => container.env(name, ResourceFieldRef::limit("hugepages-2Mi").divisor("1024Ki")),
        8 => container.env_from(EnvFrom::from(secret).prefix(name).optional()),
        _ => container.env_from(&map),
    }
}

fn look<'c, 'p>(kind: u8, ports: &[Port<'c, 'p>]) -> Probe<'c, 'p> {
    let probe = match (kind, ports.first()) {
        (0 | 1, Some(port)) => Probe::http(port, HttpGet::path("").header("X-A", "b c")),
        (2, Some(port)) => Probe::https(port, HttpGet::path("/").header("X-B", "")),
        (3, Some(port)) => Probe::tcp(port),
        (4, Some(port)) => Probe::grpc(port),
        (5, Some(port)) => Probe::grpc_service(port, "live"),
        _ => Probe::exec(["true"]),
    };
    if kind.is_multiple_of(2) {
        probe.initial_delay(Duration::from_secs(3)).failures(0)
    } else {
        probe.timeout(Duration::ZERO)
    }
}

fn hook<'c, 'p>(kind: u8, ports: &[Port<'c, 'p>]) -> LifecycleHook<'c, 'p> {
    match (kind, ports.first()) {
        (0, Some(port)) => LifecycleHook::http(port, ""),
        (1, Some(port)) => LifecycleHook::https(port, HttpGet::path("/x").header("X-A", "b")),
        (2, _) => LifecycleHook::sleep(Duration::from_secs(30)),
        _ => LifecycleHook::exec(["true"]),
    }
}
