//! The desired Job, and the report: pure functions.

use k8s_openapi::api::batch::v1::Job;
use kube::core::{ApiResource, DynamicObject};
use serde_json::json;
use trishanku_api::{App, Certificates, ControllerCertificate, TrishankuHeavenSpec};
use trishanku_framework::Kind;
use trishanku_framework::inject::JsonError;
use trishanku_framework::status::Report;
use trishanku_heaven_plan::plan::{EntryPoints, Images, Place, PlanError, heaven, host_port};
use trishanku_heaven_plan::pod;

use crate::kind::JobHeavenSpec;

/// Why the spec yields no Job.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Wrong {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("spec.podTemplate: {0}")]
    Template(#[from] JsonError),
}

/// Returns the kind of Jobs, with any fields.
pub(crate) fn jobs() -> Kind<DynamicObject> {
    Kind::new(ApiResource::erase::<Job>(&()), true)
}

/// Returns the Job, with a heaven beside its containers.
pub(crate) fn job(name: &str, spec: &JobHeavenSpec) -> Result<DynamicObject, Wrong> {
    let place = Place::pod().with_ports(pod::ports(&spec.pod_template, host_port(&as_heaven(spec))?)?);
    let plan = heaven(name, &as_heaven(spec), &Images::default(), &place, &EntryPoints::default())?;
    let template = pod::render(&plan, &spec.pod_template)?;
    let job = DynamicObject::new(name, &ApiResource::erase::<Job>(&()));
    Ok(job.data(json!({"spec": {"template": template, "backoffLimit": 6}})))
}

/// Converts the spec to that of a heaven, with the Secrets of the `TrishankuHeaven` that issues the certificates.
fn as_heaven(spec: &JobHeavenSpec) -> TrishankuHeavenSpec {
    let of = |suffix: &str| Some(format!("{}-{suffix}", spec.certificates_of));
    let controller = ControllerCertificate { secret_name: of("controller"), ..ControllerCertificate::default() };
    let certificates = Certificates {
        certificate_authority_secret_name: of("cert-ca"),
        service_accounts_secret_name: of("cert-service-account"),
        kubernetes_secret_name: of("cert-kubernetes"),
        admin_secret_name: of("admin"),
        controller: Some(controller),
    };
    let kubeconfig_mount_path = Some(spec.kubeconfig_mount_path.clone());
    let app = App { kubeconfig_mount_path, pod_template: spec.pod_template.clone(), ..App::default() };
    let (certificates, gitcd, app) = (Some(certificates), Some(spec.gitcd.clone()), Some(app));
    TrishankuHeavenSpec { certificates, gitcd, app, ..TrishankuHeavenSpec::default() }
}

/// Returns a report of the Job's own conditions.
pub(crate) fn report(job: &DynamicObject) -> Report {
    let conditions = job.data["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let is = |of: &str| conditions.iter().find(|found| found["type"] == of && found["status"] == "True");
    if is("Complete").is_some() {
        return Report::ready("Complete", "");
    }
    match is("Failed") {
        Some(failed) => Report::stalled("Failed", failed["message"].as_str().unwrap_or_default()),
        None => Report::reconciling("Running", "the Job has not finished"),
    }
}
