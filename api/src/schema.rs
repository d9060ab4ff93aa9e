//! Schemas for Kubernetes' own types, and for strings with a pattern.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Returns the schema of a whole `PodTemplateSpec`, for `#[schemars(schema_with = "…")]`. Its fields depend on the
/// Kubernetes version of the cluster, so they are not listed, and none is dropped.
pub fn pod_template(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "The pod of the controller: any PodTemplateSpec, to which the heaven's containers and volumes are added.",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// A `ResourceRequirements`.
pub(crate) fn resources(_: &mut SchemaGenerator) -> Schema {
    let quantities = |description: &str| {
        json_schema!({
            "type": "object",
            "description": description,
            "additionalProperties": { "x-kubernetes-int-or-string": true },
        })
    };
    json_schema!({
        "type": "object",
        "description": "Resource requests and limits of the container.",
        "properties": {
            "requests": quantities("Resources that the container requires, such as `cpu: 100m`."),
            "limits": quantities("Resources that the container may use at most."),
        },
    })
}

/// A duration in Kubernetes' format, such as `15s` or `1m30s`.
pub(crate) fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "pattern": r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0$",
    })
}

/// A point in time (RFC 3339).
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time", "nullable": true })
}
