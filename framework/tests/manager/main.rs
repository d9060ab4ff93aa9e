//! Controllers on a real kube-apiserver.
#![expect(clippy::unwrap_used, reason = "helpers of tests may end a test")]

mod added;
mod applying;
mod away;
mod basics;
mod beside;
mod clusters;
mod collected;
mod definitions;
mod dry;
mod dynamic;
mod endings;
mod failures;
mod leases;
mod metrics;
mod migration;
mod misfits;
mod needed;
mod paused;
mod process;
mod pruned;
mod recreating;
mod reported;
mod secured;
mod selected;
mod serving;
mod statuses;
mod streamed;
mod support;
mod traces;
mod trouble;
mod vanishing;
mod webhooks;
mod writer;
