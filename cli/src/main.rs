//! Runs a Kubernetes control plane on a Git branch.
fn main() {}
