//! Services that share an allocation with another one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;

/// An allocation that only one Service may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    /// A cluster IP.
    Address(String),
    /// A port on all nodes, whatever the protocol: kube-apiserver allocates per number.
    Port(i32),
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "cluster IP {address}"),
            Self::Port(port) => write!(f, "node port {port}"),
        }
    }
}

/// An allocation that belongs to another Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) thing: Thing,
    /// `NAMESPACE/NAME` of the owner.
    pub(super) of: String,
}

/// A Service with allocations that belong to others.
#[derive(Clone, Debug)]
pub(super) struct Loser<'s> {
    pub(super) service: &'s Service,
    pub(super) lost: Vec<Lost>,
}

/// Returns the allocations of a Service.
fn things(service: &Service) -> BTreeSet<Thing> {
    let Some(spec) = &service.spec else { return BTreeSet::new() };
    let kind = spec.type_.as_deref().unwrap_or("ClusterIP");
    if kind == "ExternalName" {
        return BTreeSet::new();
    }
    let addresses = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip);
    let addresses = addresses.filter(|address| !address.is_empty() && *address != "None");
    let mut things: BTreeSet<_> = addresses.cloned().map(Thing::Address).collect();
    if kind == "NodePort" || kind == "LoadBalancer" {
        let ports = spec.ports.iter().flatten().filter_map(|port| port.node_port);
        things.extend(ports.chain(spec.health_check_node_port).filter(|port| *port != 0).map(Thing::Port));
    }
    things
}

/// Returns the Services that must give up allocations. The oldest Service keeps them; within the same second, the one
/// with the smaller `uid`. So the result depends neither on the branch nor on the order of merges.
pub(super) fn losers(services: &[Service]) -> Vec<Loser<'_>> {
    let mut in_order: Vec<&Service> = services.iter().collect();
    in_order
        .sort_by_key(|service| (service.creation_timestamp(), service.uid(), service.namespace(), service.name_any()));
    let mut owners: BTreeMap<Thing, String> = BTreeMap::new();
    let mut losers = Vec::new();
    for service in in_order {
        let name = format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any());
        let mut lost = Vec::new();
        for thing in things(service) {
            match owners.get(&thing) {
                Some(of) => lost.push(Lost { thing, of: of.clone() }),
                None => drop(owners.insert(thing, name.clone())),
            }
        }
        // A Service that is being deleted releases its allocations anyway.
        if !lost.is_empty() && service.metadata.deletion_timestamp.is_none() {
            losers.push(Loser { service, lost });
        }
    }
    losers
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(in super::super) fn service(name: &str, second: u32, spec: &Value) -> Service {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": "n", "uid": format!("uid-of-{name}"), "resourceVersion": "7",
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            },
            "spec": spec,
        }))
        .unwrap()
    }

    fn lost_allocations(services: &[Service]) -> Vec<String> {
        let line = |loser: &Loser<'_>| {
            let lost: Vec<_> = loser.lost.iter().map(|lost| format!("{} of {}", lost.thing, lost.of)).collect();
            format!("{}: {}", loser.service.name_any(), lost.join(", "))
        };
        losers(services).iter().map(line).collect()
    }

    #[test]
    fn what_two_have_belongs_to_the_older_one_whoever_looks() {
        let port = |number: i32| json!([{"port": 80, "nodePort": number}]);
        let a = service(
            "a",
            5,
            &json!({"type": "NodePort", "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ports": port(30001)}),
        );
        let b = service(
            "b",
            3,
            &json!({"type": "NodePort", "clusterIP": "10.0.0.8", "clusterIPs": ["10.0.0.8"], "ports": port(30001)}),
        );
        let c = service(
            "c",
            5,
            &json!({"type": "ClusterIP", "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7", "fd::1"]}),
        );
        let expected = ["a: node port 30001 of n/b", "c: cluster IP 10.0.0.7 of n/a"];
        assert_eq!(lost_allocations(&[a.clone(), b.clone(), c.clone()]), expected);
        assert_eq!(lost_allocations(&[c, b, a]), expected);
    }

    #[test]
    fn what_is_none_or_of_no_use_is_no_allocation() {
        let services = [
            service("headless", 1, &json!({"clusterIP": "None", "clusterIPs": ["None"]})),
            service("headless-too", 2, &json!({"clusterIP": "None", "clusterIPs": ["None"]})),
            service("elsewhere", 3, &json!({"type": "ExternalName", "clusterIP": "10.0.0.7"})),
            service("one", 4, &json!({"clusterIP": "10.0.0.7"})),
            service("not-given", 5, &json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 0}]})),
            service("not-given-too", 6, &json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 0}]})),
            // One Service may use the same number for two protocols.
            service(
                "dns",
                7,
                &json!({"type": "NodePort", "ports": [
                    {"name": "u", "port": 53, "protocol": "UDP", "nodePort": 30053}, {"name": "t", "port": 53, "nodePort": 30053},
                ]}),
            ),
        ];
        assert_eq!(lost_allocations(&services), Vec::<String>::new());
    }
}
