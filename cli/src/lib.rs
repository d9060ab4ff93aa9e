//! Runs Kubernetes controllers on Git branches of their own, as plain processes of this machine.
//!
//! [`up`] brings a control plane up from nothing and keeps it up: a [`headless`] cluster, the [`heavens`] of manifests, or one kube-apiserver on one branch.
//! [`down`] ends it from outside; [`status`] tells what runs; [`demo`] shows what the branches of a headless cluster do. The parts that are run
//! are in [`plane`], in the order in which they are used. [`allocations`] repairs what two branches gave away at once. [`scaffold`] makes new controllers, and [`kinds`] tells where objects are kept. The `trishanku` program adds the command line, the messages and running in the background.
//!
//! ```no_run
//! use trishanku::plane::Home;
//!
//! let home = Home::named("default")?;
//! let report = trishanku::status::read(&home)?;
//! println!("{:?}, kubeconfig {}", report.health, home.kubeconfig().display());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod allocations;
pub mod demo;
pub mod down;
pub mod headless;
pub mod heavens;
pub mod kinds;
pub mod plane;
pub mod scaffold;
pub mod status;
pub mod up;
