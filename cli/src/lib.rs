//! Runs Kubernetes controllers on Git branches of their own, as plain processes of this machine.
//!
//! [`up`] brings up a control plane and supervises it: a [`headless`] cluster, the [`heavens`] of manifests, or one
//! kube-apiserver on one branch. [`down`] stops it from another process, and [`delete`] deletes it with its data.
//! [`past`] serves the past of a branch to a command. [`status`] reports its health, [`list`] that of all control planes, and [`demo`] shows which branch of a headless
//! cluster did what. [`plane`] has the processes and their certificates, ports and state. [`allocations`] repairs cluster
//! IPs and node ports that two branches assigned at once. [`scaffold`] generates new controllers, and [`kinds`] maps
//! objects to their keys. The `trishanku` program adds the command line, the messages and background operation.
//! ```no_run
//! use trishanku::plane::Home;
//!
//! let home = Home::named("default")?;
//! let report = trishanku::status::read(&home)?;
//! println!("{:?}, kubeconfig {}", report.health, home.kubeconfig().display());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod allocations;
pub mod complaint;
pub mod delete;
pub mod demo;
pub mod down;
pub mod headless;
pub mod heavens;
pub mod kinds;
pub mod list;
pub mod past;
pub mod plane;
mod record;
pub mod scaffold;
pub mod status;
pub mod up;
