//! `GitHubRepository` objects on a real kube-apiserver, with a fake GitHub.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

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
