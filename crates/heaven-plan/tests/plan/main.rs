//! Plans and pods of manifests.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod fields;
mod promises;
mod samples;
mod support;
