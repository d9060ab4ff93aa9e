//! What kube-runtime leaves to every Kubernetes controller, done once.
//!
//! You write a [`Reconciler`]: a kind, and a function that makes the world as an object of that kind says. A [`Controller`] says what
//! triggers it, and a [`Manager`] runs controllers. What they promise is written where it is kept:
//!
//! | module | promises |
//! |---|---|
//! | [`queue`] | never two at once for one object; back-off that ends with a success; who fails starves nobody |
//! | [`cache`] | everything is known before the first reconcile; what vanished unseen is noticed |
//! | [`lease`] | nobody works without the lease, also after a sleep |
//! | [`client`] | no hot loop against a server in trouble |
//! | [`crd`] | a kind is said once, in its type; a change of it that loses what is stored is refused |
//! | [`apply`] | what is wanted is written if it is not there, and only then; what is no longer wanted goes |
//! | [`status`] | written on success and failure, if it says something new; an event for each transition |
//! | [`finalizer`] | nothing goes before it is cleaned up after |
//! | [`health`] | ready when it is, dead when it is stuck |
//! | [`inject`] | sidecars beside somebody else's containers, which stay as they are; a wrong pod does not compile |
//! | [`metrics`] | the names of controller-runtime |
//! | [`telemetry`] | every reconcile is a trace, whose requests the apiserver continues; lines say which object they are about |
//! | [`serve`] | probes and figures are answered from the first moment to the last |
//!
//! Each can be used alone, with kube and kube-runtime as they are. `docs/design/framework.md` says what is taken from them, and why the
//! rest is not.

pub mod apply;
pub mod cache;
pub mod client;
pub mod clock;
mod controller;
pub mod crd;
mod error;
pub mod finalizer;
pub mod health;
pub mod inject;
mod key;
pub mod lease;
mod manager;
pub mod metrics;
mod object;
pub mod queue;
pub mod serve;
pub mod status;
mod stop;
pub mod telemetry;

pub use self::controller::{CleanedUp, Context, Controller, Next, Reconciler};
pub use self::error::{Error, Failure, Retry};
pub use self::key::Key;
pub use self::manager::{Manager, RunError};
pub use self::object::{DiscoverError, Extent, Kind, Known, Object, Reach};
pub use self::stop::stop_signal;
