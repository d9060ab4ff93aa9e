//! A harness for scenarios on a real kube-apiserver with gitcd.
//!
//! The [`scenario`]s of a test binary share one [`Cluster`]: a control plane of their own in a temporary folder, started by the
//! `trishanku` program as by a user. Scenarios use [`kubectl`] and [`git`] like users, [`watch`] like a controller, and
//! [`wait`] for conditions. Nothing outlives the test binary, even if it is killed: the supervisor stops everything when its
//! standard input closes.
//!
//! [`nodes`] provides clusters with a real kubelet, for what is installed into clusters.
//!
//! Environment:
//! - `TRISHANKU_E2E_PROGRAMS`: the folder of the `trishanku` and `gitcd` to test; by default both are built first.
//! - `TRISHANKU_E2E_STORE=etcd`: run the scenarios on stock etcd, for comparison. Scenarios about Git are then ignored.
//! - `TRISHANKU_E2E_LONG`: run the long forms of scenarios, with minutes where CI waits for moments.
//! - `TRISHANKU_E2E_KEEP`: keep the temporary folder and print its path.

pub mod cluster;
pub mod git;
pub mod headless;
pub mod kubectl;
pub mod nodes;
pub mod programs;
pub mod scenario;
pub mod wait;
pub mod watch;

pub use cluster::{Cluster, Options, Shape};
pub use scenario::{Order, Scenario, Shared, Start, run, run_groups, run_on};

/// Whether the long forms of scenarios are requested.
#[must_use]
pub fn is_long() -> bool {
    std::env::var_os("TRISHANKU_E2E_LONG").is_some()
}
