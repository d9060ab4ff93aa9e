//! Guarantees of Kubernetes, independent of the store.

pub(crate) mod api;
pub(crate) mod workloads;
