//! Paths of mounts, and the volumes behind them.

use k8s_openapi::api::core::v1::Volume;

/// Returns the path as the container runtime compares it.
pub(super) fn normal(path: &str) -> &str {
    path.trim_end_matches('/')
}

/// Returns whether a normal path is below a folder. A container runtime has to create the folder or file that is a mount
/// point, which it cannot do in read-only files.
pub(super) fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns whether a volume consists of read-only files.
pub(super) fn is_files(volume: &Volume) -> bool {
    let Volume { secret, config_map, projected, downward_api, .. } = volume;
    secret.is_some() || config_map.is_some() || projected.is_some() || downward_api.is_some()
}
