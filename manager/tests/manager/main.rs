//! The manager as it is deployed: CRDs, RBAC rules and flags.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod chart;
mod components;
mod composition;
mod deploy;
mod process;
mod runs;
mod tenants;
