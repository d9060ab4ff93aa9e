//! Heavens for Jobs in a real kube-apiserver, and the page that tells how they came about.

#[path = "../../src/control.rs"]
mod control;
#[path = "../../src/kind.rs"]
mod kind;
#[path = "../../src/plan.rs"]
mod plan;
mod runs;
mod tutorial;
