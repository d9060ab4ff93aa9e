//! Schemas of what belongs to Kubernetes itself, and names that have a pattern.

use schemars::{Schema, SchemaGenerator, json_schema};

/// A whole `PodTemplateSpec`: its fields are those of whatever Kubernetes the pods will run on, so that they are not listed, and none is dropped.
pub(crate) fn pod_template(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "The pod of the controller: any PodTemplateSpec. What the heaven needs is added beside what is here.",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// A `ResourceRequirements`.
pub(crate) fn resources(_: &mut SchemaGenerator) -> Schema {
    let quantities = json_schema!({
        "type": "object",
        "additionalProperties": { "x-kubernetes-int-or-string": true },
    });
    json_schema!({
        "type": "object",
        "description": "What the container asks for and may use at most, as in any container.",
        "properties": { "requests": quantities, "limits": quantities },
    })
}

/// A length of time as Kubernetes writes it: `15s`, `1m30s`.
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
