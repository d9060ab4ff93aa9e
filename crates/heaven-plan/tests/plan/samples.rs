//! The whole pods of the samples.

use crate::support::{MADE, heaven_pod, manifest, merge_pod, plan_of};

const PUBLISHED: &str = include_str!("../../../../api/tests/published.yaml");
const CONTROLLER_MANAGER: &str = include_str!("../../../../deploy/kustomize/samples/kube-controller-manager.yaml");
const SCHEDULER: &str = include_str!("../../../../deploy/kustomize/samples/kube-scheduler.yaml");
const MERGE: &str = include_str!("../../../../deploy/kustomize/samples/merge.yaml");
const SHARED: &str = include_str!("../../../../deploy/kustomize/samples/shared.yaml");

#[test]
fn kube_controller_manager() {
    insta::assert_yaml_snapshot!(heaven_pod(&manifest(
        CONTROLLER_MANAGER,
        "TrishankuHeaven",
        "kube-controller-manager"
    )));
}

#[test]
fn kube_scheduler() {
    insta::assert_yaml_snapshot!(heaven_pod(&manifest(SCHEDULER, "TrishankuHeaven", "kube-scheduler")));
}

#[test]
fn merge() {
    insta::assert_yaml_snapshot!(merge_pod(&manifest(MERGE, "AutomatedMerge", "cluster")));
}

#[test]
fn all_published_fields() {
    insta::assert_yaml_snapshot!(heaven_pod(&manifest(PUBLISHED, "TrishankuHeaven", "scheduler")));
}

#[test]
fn a_heaven_of_nothing_has_a_plan_too() {
    for (text, name) in [(SHARED, "cluster"), (PUBLISHED, "shared")] {
        let plan = plan_of(name, &manifest(text, "TrishankuHeaven", name), &MADE).unwrap();
        assert_eq!(plan.steps.len(), 3, "{plan:?}");
    }
}
