//! What Kubernetes promises, whatever the store.

pub(crate) mod api;
pub(crate) mod workloads;
