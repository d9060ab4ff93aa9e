//! Checks of the sources of volumes.

use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, Volume};

use super::resources;
use crate::inject::metadata;
use crate::inject::problem::Problems;

pub(super) fn check(path: &str, volume: &Volume, problems: &mut Problems) {
    if let Some(limit) = volume.empty_dir.as_ref().and_then(|dir| dir.size_limit.as_ref()) {
        resources::amount(&format!("{path}.emptyDir.sizeLimit"), limit, problems);
    }
    if let Some(template) = volume.ephemeral.as_ref().and_then(|ephemeral| ephemeral.volume_claim_template.as_ref()) {
        claim(&format!("{path}.ephemeral.volumeClaimTemplate.spec"), &template.spec, problems);
    }
    if let Some(host_path) = &volume.host_path {
        let value = &host_path.path;
        if !value.starts_with('/') || value.split('/').any(|part| part == "..") {
            let remedy = "use an absolute path without '..'";
            problems.invalid(format!("{path}.hostPath.path"), format!("is {value:?}"), remedy);
        }
    }
    if let Some(csi) = &volume.csi
        && (csi.driver.len() > 63 || !metadata::is_domain(&csi.driver.to_lowercase()))
    {
        let remedy = "use the name of the CSIDriver";
        problems.invalid(format!("{path}.csi.driver"), format!("is {:?}", csi.driver), remedy);
    }
}

fn claim(path: &str, spec: &PersistentVolumeClaimSpec, problems: &mut Problems) {
    if spec.access_modes.as_ref().is_none_or(Vec::is_empty) {
        problems.invalid(format!("{path}.accessModes"), "is empty".to_owned(), "name an access mode");
    }
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let path = format!("{path}.resources.requests[storage]");
    match requests.and_then(|requests| requests.get("storage")) {
        None => problems.invalid(path, "is missing".to_owned(), "request a size"),
        Some(size) => {
            if resources::amount(&path, size, problems) == Some(0) {
                problems.invalid(path, "is 0".to_owned(), "request a size");
            }
        }
    }
}
