//! Objects other than Deployments and Secrets: pure functions of a manifest.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, PersistentVolumeClaimSpec, Service, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use trishanku_api::{Gitcd, Host};

use crate::names;
use crate::plan::gitcd::HOST_PORT;
use crate::plan::{GITCD_CONFIG, HOME, PlanError};
use crate::workload::{self, Replicas};

/// Default flags of every gitcd with these entry points; manifests override them.
const FLAGS: &str = "\
# Flags of gitcd, without the dashes in front, for all pods with these entry points.
# To have others: copy this ConfigMap, name the copy in app.entrypointsConfigMapName, and set skip.entrypoints.
verbosity: 0
";

/// The `ConfigMap` with entry points. It has no script: gitcd prepares repositories itself, unless users supply
/// `git-pre.sh`.
pub fn entry_points(name: String) -> ConfigMap {
    let data = BTreeMap::from([(GITCD_CONFIG.to_owned(), FLAGS.to_owned())]);
    ConfigMap { metadata: called(name), data: Some(data), ..ConfigMap::default() }
}

/// The volume claim to create for the repository, if the manifest sets its size.
pub fn claim(name: &str, gitcd: Option<&Gitcd>) -> Option<PersistentVolumeClaim> {
    let claim = gitcd?.storage.as_ref()?.volume_claim.as_ref()?;
    let size = claim.size.clone().filter(|_| claim.name.is_none())?;
    let requests = Some([("storage".to_owned(), Quantity(size))].into());
    let spec = PersistentVolumeClaimSpec {
        access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
        resources: Some(VolumeResourceRequirements { requests, limits: None }),
        storage_class_name: claim.storage_class_name.clone(),
        ..PersistentVolumeClaimSpec::default()
    };
    let metadata = called(names::repository_claim(name));
    Some(PersistentVolumeClaim { metadata, spec: Some(spec), ..PersistentVolumeClaim::default() })
}

/// The volume claims to create for the repositories of a heaven.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolumeClaims {
    /// The claim of a heaven with one replica.
    pub shared: Option<PersistentVolumeClaim>,
    /// The template from which each replica gets a claim of its own. Its name is that of the volume.
    pub by_replica: Option<PersistentVolumeClaim>,
}

/// Returns the volume claims to create for the repositories of a heaven.
pub fn claims(name: &str, gitcd: Option<&Gitcd>, replicas: Replicas) -> VolumeClaims {
    let claim = claim(name, gitcd);
    match (replicas, claim) {
        (Replicas::Named { .. }, Some(claim)) => {
            let by_replica = PersistentVolumeClaim { metadata: called(HOME.to_owned()), ..claim };
            VolumeClaims { shared: None, by_replica: Some(by_replica) }
        }
        (_, shared) => VolumeClaims { shared, by_replica: None },
    }
}

/// The fields of a Service that a manifest may set. Others would send traffic of the cluster elsewhere (`externalIPs`,
/// `externalName`: CVE-2020-8554), or select other pods.
const SERVICE_FIELDS: [&str; 14] = [
    "allocateLoadBalancerNodePorts",
    "clusterIP",
    "externalTrafficPolicy",
    "internalTrafficPolicy",
    "ipFamilies",
    "ipFamilyPolicy",
    "loadBalancerClass",
    "loadBalancerSourceRanges",
    "ports",
    "publishNotReadyAddresses",
    "sessionAffinity",
    "sessionAffinityConfig",
    "trafficDistribution",
    "type",
];

/// The Service for the Git host, which selects the pods with this label.
///
/// # Errors
/// [`PlanError`] if a given field is not allowed, or not valid in the spec of a Service.
pub fn host_service(heaven: &str, label: &str, gitcd: Option<&Gitcd>) -> Result<Option<Service>, PlanError> {
    let Some(Host { port, service, .. }) = gitcd.and_then(|gitcd| gitcd.host.as_ref()) else { return Ok(None) };
    let port = port.unwrap_or(HOST_PORT);
    let mut spec = json!({"ports": [{"name": "git", "port": port, "targetPort": port, "protocol": "TCP"}]});
    if let (Value::Object(spec), Some(Value::Object(given))) = (&mut spec, service) {
        if let Some((field, value)) = given.iter().find(|(field, _)| !SERVICE_FIELDS.contains(&field.as_str())) {
            let problem = "is not allowed, because the Service must select only the Git host: remove it";
            return Err(PlanError::value(format!("gitcd.host.service.{field}"), &value.to_string(), problem));
        }
        if given.get("type").is_some_and(|kind| kind == "ExternalName") {
            let problem = "is not allowed here: use ClusterIP, NodePort or LoadBalancer";
            return Err(PlanError::value("gitcd.host.service.type", "ExternalName", problem));
        }
        if let Some(address) = given.get("clusterIP").filter(|address| *address != "None") {
            let problem = "is not allowed here: only None is, for a Service without an address of its own";
            return Err(PlanError::value("gitcd.host.service.clusterIP", &address.to_string(), problem));
        }
        spec.extend(given.clone());
    }
    for entry in spec["ports"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        let target = entry.entry("targetPort").or_insert_with(|| port.into());
        if *target != port && *target != "git" {
            let problem = "is not the port of the Git host: leave it out";
            return Err(PlanError::value("gitcd.host.service.ports.targetPort", &target.to_string(), problem));
        }
        if let Some(protocol) = entry.get("protocol").filter(|protocol| *protocol != "TCP") {
            let problem = "is not the protocol of the Git host: leave it out";
            return Err(PlanError::value("gitcd.host.service.ports.protocol", &protocol.to_string(), problem));
        }
    }
    spec["selector"] = json!({label: workload::label_value(heaven)});
    let object = json!({"metadata": {"name": names::host_service(heaven)}, "spec": spec});
    let problem = "is not the spec of a Service: see `kubectl explain service.spec`";
    let wrong = |_| PlanError::value("gitcd.host.service", &service.clone().unwrap_or_default().to_string(), problem);
    serde_json::from_value(object).map(Some).map_err(wrong)
}

fn called(name: String) -> ObjectMeta {
    ObjectMeta { name: Some(name), ..ObjectMeta::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_of_the_git_host_leads_nowhere_else() {
        let with = |service: Value| {
            let gitcd = json!({"host": {"tokensSecretName": "t", "service": service}});
            host_service("a", workload::HEAVEN, Some(&serde_json::from_value(gitcd).unwrap()))
        };
        let service = with(json!({"type": "NodePort", "ports": [{"port": 443, "nodePort": 30443}]})).unwrap().unwrap();
        let spec = serde_json::to_value(service.spec.unwrap()).unwrap();
        assert_eq!((&spec["type"], &spec["ports"][0]["targetPort"]), (&json!("NodePort"), &json!(HOST_PORT)));
        for (service, field) in [
            (json!({"externalIPs": ["10.0.0.1"]}), "externalIPs"),
            (json!({"externalName": "example.org"}), "externalName"),
            (json!({"type": "ExternalName"}), "type"),
            (json!({"selector": {"app": "other"}}), "selector"),
            (json!({"ports": [{"port": 6443, "targetPort": 6443}]}), "targetPort"),
            (json!({"ports": [{"port": 53, "protocol": "UDP"}]}), "protocol"),
            (json!({"clusterIP": "10.96.0.10"}), "clusterIP"),
        ] {
            let said = with(service).unwrap_err().to_string();
            assert!(said.contains("spec.gitcd.host.service.") && said.contains(field), "{said}");
        }
    }
}
