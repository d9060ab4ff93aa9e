//! What kube-runtime leaves to every Kubernetes controller, done once.
//!
//! You write a [`StatusReconciler`]: a kind, and a function that makes the actual state match the spec of an object of that kind,
//! and says what the status is. (For a kind whose status others write, a [`Reconciler`].) A [`Controller`] adds its triggers and
//! writes the status, a [`Manager`] runs controllers, and a [`Program`] is the main function around it. Each module documents what
//! it promises:
//!
//! | module | promises |
//! |---|---|
//! | [`queue`] | never two reconciles of an object at once; back-off that a success resets; failing objects do not starve others |
//! | [`cache`] | complete before the first reconcile; deletions during a gap of the watch are reported |
//! | [`lease`] | no request without the lease, also after a suspend |
//! | [`client`] | no hot loop against a failing apiserver |
//! | [`crd`] | a kind is declared once, in its type; a change that would lose stored data is rejected |
//! | [`apply`] | objects are written only if they differ from the desired state, and pruned when they are no longer desired |
//! | [`status`] | written on success and failure, if it changes; one event for each transition |
//! | [`finalizer`] | no object is deleted before its cleanup succeeds |
//! | [`health`] | readiness by named conditions; liveness fails for a stuck controller |
//! | [`inject`] | sidecars in existing pods, whose own containers do not change; an invalid pod does not compile |
//! | [`metrics`] | the names of controller-runtime |
//! | [`telemetry`] | a trace for each reconcile, continued by the apiserver; log lines that name the object |
//! | [`serve`] | probes and metrics are served from start to exit |
//! | [`webhook`] | certificates change without a refused request |
//!
//! Each module can be used alone, with unmodified kube and kube-runtime, and has a Cargo feature (see the README).
//! `docs/design/framework.md` explains what is reused from them, and why the rest is not.

#![cfg_attr(not(feature = "controller"), allow(dead_code, unused_imports, reason = "a part of what controllers need"))]

#[cfg(feature = "apply")]
pub mod apply;
#[cfg(feature = "client")]
mod around;
#[cfg(feature = "cache")]
pub mod cache;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
pub mod clock;
#[cfg(feature = "controller")]
mod cluster;
#[cfg(feature = "controller")]
mod controller;
#[cfg(feature = "crd")]
pub mod crd;
mod error;
#[cfg(feature = "controller")]
pub mod finalizer;
#[cfg(feature = "controller")]
pub mod health;
#[cfg(feature = "inject")]
pub mod inject;
#[cfg(feature = "client")]
mod key;
#[cfg(feature = "client")]
pub mod lease;
#[cfg(feature = "controller")]
mod manager;
#[cfg(feature = "client")]
pub mod metrics;
#[cfg(feature = "cache")]
mod object;
#[cfg(feature = "program")]
mod program;
#[cfg(any(feature = "apply", feature = "inject"))]
mod quantity;
pub mod queue;
#[cfg(feature = "serve")]
pub mod serve;
#[cfg(feature = "controller")]
pub mod status;
#[cfg(feature = "controller")]
mod stop;
#[cfg(feature = "telemetry")]
pub mod telemetry;
#[cfg(feature = "client")]
mod trace;
#[cfg(feature = "webhook")]
pub mod webhook;

#[cfg(feature = "apply")]
pub use self::apply::{Error, Result};
#[cfg(feature = "controller")]
pub use self::cluster::Cluster;
#[cfg(feature = "controller")]
pub use self::controller::{
    Action, CleanedUp, Context, Controller, Kinds, Reconciler, Reported, StatusError, StatusReconciler, Term,
    WithStatus,
};
pub use self::error::{Failure, Retry};
#[cfg(feature = "client")]
pub use self::key::Key;
#[cfg(feature = "controller")]
pub use self::manager::{Manager, RunError};
#[cfg(feature = "cache")]
pub use self::object::{ApiScope, DiscoverError, Kind, Object, ScopeKind, StaticKind};
#[cfg(feature = "program")]
pub use self::program::Program;
#[cfg(feature = "controller")]
pub use self::stop::stop_signal;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
