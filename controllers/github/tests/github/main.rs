//! Repositories on a GitHub of our own: a real server that keeps what it is told, behind a real kube-apiserver's objects.
#![expect(clippy::unwrap_used, reason = "helpers of tests may end a test")]

mod contract;
mod enterprise;
mod fake;
mod lifecycles;
mod limits;
mod prism;
mod refusals;
mod scale;
mod shown;
mod world;
