//! Tests of the ported controllers: their pure functions, the controllers on a real kube-apiserver, and the page about them.
#![expect(clippy::unwrap_used, reason = "helpers of tests may end a test")]

mod cron_job;
mod cron_job_admission;
mod cron_job_plan;
mod cron_job_program;
mod generator;
mod hello_plan;
mod hello_world;
mod page;
mod support;
