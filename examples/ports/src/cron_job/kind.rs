//! The kind: its spec, and its status. The names of the fields are those of the tutorial.

use k8s_openapi::api::batch::v1::JobTemplateSpec;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use trishanku_framework::status::{ConditionedStatus, any_object};

/// Starts Jobs on a schedule.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[kube(group = "batch.tutorial.kubebuilder.io", version = "v1", kind = "CronJob", plural = "cronjobs", namespaced)]
#[kube(status = "CronJobStatus", doc = "Starts Jobs on a schedule.")]
#[kube(printcolumn = r#"{"name":"Schedule","type":"string","jsonPath":".spec.schedule"}"#)]
#[kube(printcolumn = r#"{"name":"Last","type":"date","jsonPath":".status.lastScheduleTime"}"#)]
#[kube(printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#)]
pub struct CronJobSpec {
    /// Schedule in cron format, with five fields, in UTC.
    pub schedule: String,
    /// Seconds after the scheduled time in which a run may still start. Without it, a missed run starts however late it is.
    #[schemars(range(min = 0))]
    pub starting_deadline_seconds: Option<i64>,
    /// What to do when the previous Jobs have not finished.
    #[serde(default)]
    pub concurrency_policy: ConcurrencyPolicy,
    /// Starts no Jobs while it is true. Jobs that have started continue.
    pub suspend: Option<bool>,
    /// The Job of a run.
    #[schemars(schema_with = "any_object")]
    pub job_template: JobTemplateSpec,
    /// Number of complete Jobs to keep. Without it, all are kept.
    #[schemars(range(min = 0))]
    pub successful_jobs_history_limit: Option<i32>,
    /// Number of failed Jobs to keep. Without it, all are kept.
    #[schemars(range(min = 0))]
    pub failed_jobs_history_limit: Option<i32>,
}

/// What to do when a run is due, and Jobs of previous runs have not finished.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum ConcurrencyPolicy {
    /// Start it.
    #[default]
    Allow,
    /// Wait until they have finished.
    Forbid,
    /// Delete them.
    Replace,
}

/// What the Jobs say, and the conditions.
pub type CronJobStatus = ConditionedStatus<JobsStatus>;

/// What the Jobs say.
#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobsStatus {
    /// Jobs that have not finished.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "any_objects")]
    pub active: Vec<ObjectReference>,
    /// Scheduled time of the last run that was started.
    #[schemars(with = "Option<String>")]
    pub last_schedule_time: Option<Time>,
}

fn any_objects(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": any_object(generator)})
}
