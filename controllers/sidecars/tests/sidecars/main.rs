//! Plans and pods of manifests.
#![expect(clippy::unwrap_used, reason = "helpers of tests may end a test")]

mod fields;
mod promises;
mod samples;
mod support;
