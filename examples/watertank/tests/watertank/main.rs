//! Tests of the example: its plan, the program on a real kube-apiserver, and the tutorial.
#![expect(clippy::unwrap_used, reason = "helpers of tests may end a test")]

mod cluster;
mod levels;
#[path = "../../src/plan.rs"]
mod plan;
mod process;
#[path = "../../src/tank.rs"]
mod tank;
mod tutorial;
