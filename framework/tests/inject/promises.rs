//! Properties that hold for every template.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};
use trishanku_framework::inject::{KUBECONFIG, ProblemKind, Users};

use crate::heaven::{Heaven, PULL_SECRET, SIDECARS, VOLUMES, WATCHER, template};

/// A list of a template; left out if it is empty, as users do.
fn list(field: &str, values: &[Value]) -> Value {
    if values.is_empty() { json!({}) } else { json!({ field: values }) }
}

fn joined(parts: impl IntoIterator<Item = Value>) -> Value {
    let fields = parts.into_iter().filter_map(|part| part.as_object().cloned()).flatten();
    Value::Object(fields.collect())
}

fn some<T: Clone + std::fmt::Debug + 'static>(of: &[T]) -> impl Strategy<Value = Vec<T>> + use<T> {
    subsequence(of.to_vec(), 0..=of.len())
}

/// Names and numbers in the user's template, some of which are also injected.
#[derive(Clone, Copy)]
struct Words {
    containers: &'static [&'static str],
    volumes: &'static [&'static str],
    ports: &'static [u16],
    env: &'static [&'static str],
    mounts: &'static [&'static str],
}

/// None of them collides.
const FRIENDLY: Words = Words {
    containers: &["app", "web", "proxy", "db"],
    volumes: &["data", "ca"],
    ports: &[80, 2379, 2380, 2479, 2480, 8080, 8081],
    env: &["HOME", "A"],
    mounts: &["/data", "/var/run/other"],
};

/// Many of them collide.
const ANY: Words = Words {
    containers: &["app", "gitcd", "watcher", "git-pre", "web"],
    volumes: &["data", "repo", "kubeconfig"],
    ports: &[80, 2479, 6443],
    env: &["HOME", KUBECONFIG],
    mounts: &["/data", "/var/run/heaven", "/var/run/heaven/kubeconfig", "/var/run"],
};

fn container(words: Words, name: &'static str) -> impl Strategy<Value = Value> {
    let value = prop_oneof![Just(json!("x")), Just(json!("/var/run/heaven/kubeconfig"))];
    let fields =
        (some(words.ports), some(words.env), value, some(words.mounts), select(words.volumes), any::<[bool; 3]>());
    fields.prop_map(move |(ports, env, value, mounts, volume, [is_udp, is_probed, is_sidecar])| {
        let port = |port: u16| {
            if is_udp { json!({"containerPort": port, "protocol": "UDP"}) } else { json!({"containerPort": port}) }
        };
        let probe =
            ports.first().filter(|_| is_probed).map(|port| json!({"livenessProbe": {"tcpSocket": {"port": port}}}));
        let parts = [
            json!({"name": name, "image": "app:1"}),
            list("ports", &ports.into_iter().map(port).collect::<Vec<_>>()),
            list("env", &env.into_iter().map(|name| json!({"name": name, "value": value})).collect::<Vec<_>>()),
            list(
                "volumeMounts",
                &mounts.into_iter().map(|path| json!({"name": volume, "mountPath": path})).collect::<Vec<_>>(),
            ),
            // Only valid in init containers.
            if is_sidecar { json!({"restartPolicy": "Always"}) } else { json!({}) },
            probe.unwrap_or_default(),
        ];
        joined(parts)
    })
}

fn users(words: Words) -> impl Strategy<Value = PodTemplateSpec> {
    let containers = some(words.containers).prop_shuffle().prop_flat_map(move |names| {
        let count = names.len();
        (names.into_iter().map(|name| container(words, name)).collect::<Vec<_>>(), 0..=count)
    });
    let secrets = some(&["mine", PULL_SECRET]);
    (containers, some(words.volumes), secrets, any::<[bool; 2]>()).prop_map(
        |((mut containers, init), volumes, secrets, [host_network, labels])| {
            let rest = containers.split_off(init);
            let volume = |name: &str| json!({"name": name, "emptyDir": {}});
            let spec = joined([
                json!({"containers": rest, "serviceAccountName": "app"}),
                list("initContainers", &containers),
                list("volumes", &volumes.into_iter().map(volume).collect::<Vec<_>>()),
                list("imagePullSecrets", &secrets.into_iter().map(|name| json!({"name": name})).collect::<Vec<_>>()),
                if host_network { json!({"hostNetwork": true}) } else { json!({}) },
            ]);
            let metadata = if labels { json!({"metadata": {"labels": {"app": "a"}}}) } else { json!({}) };
            template(joined([json!({"spec": spec}), metadata]))
        },
    )
}

fn heavens() -> impl Strategy<Value = Heaven> {
    (any::<[bool; 4]>()).prop_map(|[events_etcd, claim, watcher, kubeconfig]| {
        let kubeconfig = kubeconfig.then_some(Users::All);
        Heaven { events_etcd, claim, kubeconfig, watcher, ..Heaven::default() }
    })
}

fn names(containers: &[Container]) -> Vec<&str> {
    containers.iter().map(|container| container.name.as_str()).collect()
}

fn all(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

/// Removes what `users` does not have: elements of lists, after theirs or, for init containers, between them.
fn without_injected(injected: &PodTemplateSpec, users: &PodTemplateSpec) -> PodTemplateSpec {
    fn cut<T>(list: &mut Option<Vec<T>>, users: Option<&Vec<T>>) {
        if let Some(elements) = list {
            elements.truncate(users.map_or(0, Vec::len));
        }
        if list.as_ref().is_some_and(Vec::is_empty) && users.is_none() {
            *list = None;
        }
    }
    let (mut template, theirs) = (injected.clone(), users.spec.as_ref().unwrap());
    let spec = template.spec.as_mut().unwrap();
    let user_names: HashSet<&str> = all(theirs).map(|container| container.name.as_str()).collect();
    spec.containers.truncate(theirs.containers.len());
    if let Some(containers) = &mut spec.init_containers {
        containers.retain(|container| user_names.contains(container.name.as_str()));
        if containers.is_empty() {
            spec.init_containers = None;
        }
    }
    cut(&mut spec.volumes, theirs.volumes.as_ref());
    cut(&mut spec.image_pull_secrets, theirs.image_pull_secrets.as_ref());
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let theirs = all(theirs).find(|users| users.name == container.name).unwrap();
        cut(&mut container.env, theirs.env.as_ref());
        cut(&mut container.volume_mounts, theirs.volume_mounts.as_ref());
    }
    template
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_there_it_is_left_alone_or_nothing_is_injected(users in users(ANY), heaven in heavens()) {
        match heaven.inject(&users) {
            Ok(injected) => {
                prop_assert_eq!(&without_injected(&injected, &users), &users);
                prop_assert_eq!(heaven.inject(&injected).unwrap(), injected);
            }
            Err(error) => {
                prop_assert!(!error.problems().is_empty());
                for problem in error.problems() {
                    prop_assert!(problem.path.starts_with("spec."), "{}", problem);
                    prop_assert!(!problem.found.is_empty() && !problem.remedy.is_empty(), "{:?}", problem);
                    prop_assert_eq!(problem.kind, ProblemKind::Collision, "{}", problem);
                }
                prop_assert_eq!(heaven.inject(&users).unwrap_err(), error);
            }
        }
    }

    #[test]
    fn what_is_injected_has_its_place_and_the_users_keep_theirs(users in users(FRIENDLY), heaven in heavens()) {
        let injected = heaven.inject(&users).unwrap();
        prop_assert_eq!(&without_injected(&injected, &users), &users);
        prop_assert_eq!(&heaven.inject(&injected).unwrap(), &injected);

        let (spec, theirs) = (injected.spec.unwrap(), users.spec.unwrap());
        let mut ordered: Vec<&str> = SIDECARS.to_vec();
        ordered.retain(|name| heaven.events_etcd || *name != "events-etcd");
        ordered.extend(names(theirs.init_containers.as_deref().unwrap_or_default()));
        prop_assert_eq!(names(spec.init_containers.as_deref().unwrap()), ordered);
        let mut beside = names(&theirs.containers);
        beside.extend(heaven.watcher.then_some(WATCHER));
        prop_assert_eq!(names(&spec.containers), beside);
        let mut volumes: Vec<&str> = theirs.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
        volumes.extend(VOLUMES.iter().filter(|name| heaven.events_etcd || **name != "events"));
        prop_assert_eq!(spec.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect::<Vec<_>>(), volumes);
        prop_assert_eq!(spec.image_pull_secrets.iter().flatten().filter(|secret| secret.name == PULL_SECRET).count(), 1);
    }

    #[test]
    fn no_port_of_an_injected_container_is_another_ones(users in users(FRIENDLY), heaven in heavens()) {
        let spec = heaven.inject(&users).unwrap().spec.unwrap();
        let ports = |container: &Container| -> Vec<i32> {
            let tcp = container.ports.iter().flatten().filter(|port| port.protocol.as_deref() != Some("UDP"));
            tcp.map(|port| port.container_port).collect()
        };
        for ours in all(&spec).filter(|container| SIDECARS.contains(&container.name.as_str()) || container.name == WATCHER) {
            for other in all(&spec).filter(|other| other.name != ours.name) {
                let shared: Vec<_> = ports(ours).into_iter().filter(|port| ports(other).contains(port)).collect();
                prop_assert!(shared.is_empty(), "{} and {}: {:?}", ours.name, other.name, shared);
            }
        }
    }

    #[test]
    fn exactly_the_users_containers_get_the_kubeconfig(users in users(FRIENDLY)) {
        let spec = Heaven::default().inject(&users).unwrap().spec.unwrap();
        for container in all(&spec) {
            let is_ours = SIDECARS.contains(&container.name.as_str());
            let variables: Vec<_> = container.env.iter().flatten().filter(|variable| variable.name == KUBECONFIG).collect();
            let mounts: Vec<_> = container.volume_mounts.iter().flatten().filter(|mount| mount.name == "kubeconfig").collect();
            prop_assert_eq!((variables.len(), mounts.len()), if is_ours { (0, 0) } else { (1, 1) }, "{}", container.name);
        }
    }
}
