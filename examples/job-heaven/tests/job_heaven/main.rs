//! Tests of heavens for Jobs on a real kube-apiserver, and of the page that explains them.

#[path = "../../src/control.rs"]
mod control;
#[path = "../../src/kind.rs"]
mod kind;
#[path = "../../src/plan.rs"]
mod plan;
mod runs;
mod tutorial;
