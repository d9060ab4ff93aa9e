//! A server of one branch: the etcd v3 API, its JSON gateway, metrics, health and status over one branch of a Git repository.
//!
//! [`server::Server`] opens a branch and serves it. A request enters through `dispatcher`, which counts it and routes it to a
//! service of [`api`], to the JSON [`gateway`], or to the pages of [`http`]; `Range` has a fast path there.

pub mod api;
pub mod audit;
pub mod config;
pub mod connections;
mod dispatcher;
pub mod gateway;
pub mod http;
mod member;
pub mod metrics;
pub mod proto;
pub mod server;
pub mod status;
pub mod telemetry;
