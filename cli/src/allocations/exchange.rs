//! Replaces allocations of a Service. A cluster IP is immutable, but an `ExternalName` Service has none, and gets a new
//! one when it is changed back. The object and its `uid` stay the same.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::collision::{Lost, Thing};

/// Annotation with the fields to restore; present while an exchange is in progress.
pub(super) const BEGUN: &str = "allocations.trishanku.org/exchange";
/// The `externalName` during the exchange: a name that never exists (RFC 2606).
const NOWHERE: &str = "gets-another-address.invalid";
/// Fields that an `ExternalName` Service cannot have.
const FIELDS: [&str; 11] = [
    "type",
    "clusterIP",
    "clusterIPs",
    "ipFamilies",
    "ipFamilyPolicy",
    "healthCheckNodePort",
    "externalTrafficPolicy",
    "internalTrafficPolicy",
    "loadBalancerClass",
    "allocateLoadBalancerNodePorts",
    "loadBalancerSourceRanges",
];

/// The state to restore at the end of an exchange.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Exchange {
    /// Fields of the `spec`, without the lost allocations.
    fields: Map<String, Value>,
    /// The node ports that it keeps, by port name.
    #[serde(default)]
    ports: BTreeMap<String, Value>,
    /// The addresses that it lost, and the Services (`NAMESPACE/NAME`) that own them.
    #[serde(default)]
    pub(super) addresses: BTreeMap<String, String>,
}

impl Exchange {
    /// Reads the exchange that is in progress, if there is one.
    pub(super) fn begun(service: &Service) -> Option<Self> {
        serde_json::from_str(service.annotations().get(BEGUN)?).ok()
    }

    /// Returns the Service without allocations, and what to restore.
    pub(super) fn begin(service: &Service, lost: &[Lost]) -> Option<(Service, Self)> {
        let mut exchange = Self::default();
        let mut spec = serde_json::to_value(service.spec.as_ref()?).ok()?;
        let fields = spec.as_object_mut()?;
        exchange.fields.extend(FIELDS.iter().filter_map(|field| fields.remove_entry(*field)));
        for lost in lost {
            match &lost.thing {
                Thing::Address(address) => {
                    exchange.addresses.insert(address.clone(), lost.of.clone());
                    // With two families, both are allocated anew: the first one decides which the second can be.
                    exchange.fields.remove("clusterIP");
                    exchange.fields.remove("clusterIPs");
                }
                Thing::Port(port) => {
                    let kept = |given: &Value| *given != *port;
                    exchange.fields.retain(|field, given| field != "healthCheckNodePort" || kept(given));
                }
            }
        }
        for port in ports(&mut spec) {
            let name = name_of(port);
            let kept =
                |given: &Value| lost.iter().all(|lost| !matches!(lost.thing, Thing::Port(port) if *given == port));
            if let Some(given) = port.remove("nodePort").filter(kept) {
                exchange.ports.insert(name, given);
            }
        }
        spec["type"] = "ExternalName".into();
        spec["externalName"] = NOWHERE.into();
        let mut without = service.clone();
        without.spec = Some(serde_json::from_value(spec).ok()?);
        without.annotations_mut().insert(BEGUN.to_owned(), serde_json::to_string(&exchange).ok()?);
        Some((without, exchange))
    }

    /// Returns the Service as it was, without the lost allocations. Changes that others made during the exchange are
    /// kept.
    pub(super) fn finish(&self, mut service: Service) -> Option<Service> {
        let mut spec = serde_json::to_value(service.spec.as_ref()?).ok()?;
        let fields = spec.as_object_mut()?;
        if fields.get("externalName").is_some_and(|name| name == NOWHERE) {
            fields.remove("externalName");
            fields.extend(self.fields.clone());
            for port in ports(&mut spec) {
                if let Some(kept) = self.ports.get(&name_of(port)) {
                    port.insert("nodePort".to_owned(), kept.clone());
                }
            }
        }
        service.spec = Some(serde_json::from_value(spec).ok()?);
        service.annotations_mut().remove(BEGUN);
        Some(service)
    }
}

fn ports(spec: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The name of a port; only a single port may have none.
fn name_of(port: &Map<String, Value>) -> String {
    port.get("name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::allocations::collision::losers;

    fn service(spec: &Value) -> Service {
        let metadata = json!({"name": "s", "namespace": "n", "uid": "u", "annotations": {"a": "b"}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn lost(thing: Thing) -> Lost {
        Lost { thing, of: "n/other".to_owned() }
    }

    #[test]
    fn it_is_what_it_was_without_what_was_lost_even_if_it_is_ended_by_another_one() {
        let was = service(&json!({
            "type": "LoadBalancer", "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ipFamilies": ["IPv4"],
            "externalTrafficPolicy": "Local", "healthCheckNodePort": 30009, "selector": {"app": "x"},
            "ports": [{"name": "a", "port": 80, "nodePort": 30001}, {"name": "b", "port": 81, "nodePort": 30002}],
        }));
        let all = [lost(Thing::Address("10.0.0.7".to_owned())), lost(Thing::Port(30002)), lost(Thing::Port(30009))];
        let (without, _) = Exchange::begin(&was, &all).unwrap();
        assert!(losers(&[without.clone(), without.clone()]).is_empty(), "it has no allocations any more");
        assert_eq!(without.spec.as_ref().unwrap().type_.as_deref(), Some("ExternalName"));
        // Another client edits it during the exchange.
        let mut edited = without;
        edited.spec.as_mut().unwrap().selector = Some([("app".to_owned(), "y".to_owned())].into());
        let exchange = Exchange::begun(&edited).unwrap();
        assert_eq!(exchange.addresses["10.0.0.7"], "n/other");
        let is = exchange.finish(edited).unwrap();
        let spec = is.spec.as_ref().unwrap();
        assert_eq!((&spec.cluster_ip, &spec.external_name, spec.health_check_node_port), (&None, &None, None));
        assert_eq!(
            (spec.type_.as_deref(), spec.external_traffic_policy.as_deref()),
            (Some("LoadBalancer"), Some("Local"))
        );
        assert_eq!(spec.selector.as_ref().unwrap()["app"], "y");
        let ports: Vec<_> = spec.ports.iter().flatten().map(|port| port.node_port).collect();
        assert_eq!(ports, [Some(30001), None]);
        assert_eq!(is.annotations().keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(is.uid(), was.uid());
    }

    #[test]
    fn who_loses_a_port_keeps_the_address() {
        let was = service(
            &json!({"type": "NodePort", "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ports": [{"port": 80, "nodePort": 30001}]}),
        );
        let (without, exchange) = Exchange::begin(&was, &[lost(Thing::Port(30001))]).unwrap();
        let is = exchange.finish(without).unwrap().spec.unwrap();
        assert_eq!((is.cluster_ip.as_deref(), is.ports.unwrap()[0].node_port), (Some("10.0.0.7"), None));
    }

    #[test]
    fn who_was_made_something_else_meanwhile_stays_so() {
        let was = service(&json!({"clusterIP": "10.0.0.7"}));
        let (mut without, exchange) = Exchange::begin(&was, &[lost(Thing::Address("10.0.0.7".to_owned()))]).unwrap();
        without.spec.as_mut().unwrap().external_name = Some("example.org".to_owned());
        let is = exchange.finish(without).unwrap();
        assert_eq!(is.spec.unwrap().external_name.as_deref(), Some("example.org"));
        assert!(!is.metadata.annotations.unwrap().contains_key(BEGUN));
    }
}
