//! Runs a Kubernetes control plane on a Git branch, as plain processes of this machine.
//!
//! [`up`] brings gitcd, kube-apiserver, kube-controller-manager and kube-scheduler up from nothing and keeps them up; [`down`] ends
//! them from outside; [`status`] tells what runs. The parts that they are made of are in [`plane`], in the order in which they are used.
//! [`scaffold`] makes new controllers. The `trishanku` program adds the command line, the messages and running in the background.
//!
//! ```no_run
//! use trishanku::plane::Home;
//!
//! let home = Home::named("default")?;
//! let report = trishanku::status::read(&home)?;
//! println!("{:?}, kubeconfig {}", report.health, home.kubeconfig().display());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod down;
pub mod headless;
pub mod heavens;
pub mod plane;
pub mod scaffold;
pub mod status;
pub mod up;
