//! Controllers on a real kube-apiserver.
#![expect(clippy::unwrap_used, reason = "helpers of tests may end a test")]

mod applying;
mod away;
mod basics;
mod beside;
mod collected;
mod definitions;
mod dry;
mod dynamic;
mod endings;
mod failures;
mod figures;
mod leases;
mod misfits;
mod needed;
mod process;
mod recreating;
mod serving;
mod statuses;
mod support;
mod traces;
mod trouble;
mod vanishing;
mod writer;
