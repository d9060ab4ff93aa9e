//! Harness for scenarios against a real kube-apiserver on gitcd.
//!
//! A test binary lists its [`scenario`]s; they share one [`Cluster`], a control plane of their own in a temporary folder that the
//! `trishanku` program brings up, just as a person would. Scenarios use [`kubectl`] and [`git`] as people do, [`watch`] as a controller
//! does, and [`wait`] for conditions. Nothing outlives the test binary, even if it is killed: the supervisor ends everything when
//! its standard input closes.
//!
//! [`nodes`] has what pods run in: a cluster with a real kubelet, for what is installed into clusters.
//!
//! Environment:
//! - `TRISHANKU_E2E_PROGRAMS`: the folder of the `trishanku` and `gitcd` to test; by default both are built first.
//! - `TRISHANKU_E2E_STORE=etcd`: run the scenarios on a stock etcd, to compare. Those about Git are shown as ignored then.
//! - `TRISHANKU_E2E_LONG`: the long forms of scenarios that have one, with minutes where CI has moments.
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
pub use scenario::{Order, Scenario, Shared, run, run_on};

/// Whether the long forms of scenarios are wanted.
#[must_use]
pub fn is_long() -> bool {
    std::env::var_os("TRISHANKU_E2E_LONG").is_some()
}
