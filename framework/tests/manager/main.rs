//! Controllers on a real kube-apiserver.
#![expect(clippy::unwrap_used, reason = "helpers of tests may end a test")]

mod applying;
mod basics;
mod failures;
mod leases;
mod process;
mod statuses;
mod support;
mod trouble;
