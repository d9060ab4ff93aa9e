//! A control plane as used by users and controllers, and its objects in Git.

mod git;
mod kubernetes;
mod past;
mod people;

use std::process::ExitCode;

use trishanku_e2e::{Options, Order, Scenario, run, scenarios};

fn main() -> ExitCode {
    let mut all = scenarios![
        kubernetes::workloads::a_deployment_gets_its_replica_set_and_pending_pods,
        kubernetes::workloads::dependents_go_with_their_owner_unless_orphaned,
        kubernetes::workloads::an_object_with_a_finalizer_stays_until_it_is_removed,
        kubernetes::workloads::a_deleted_namespace_takes_its_objects_along,
        kubernetes::api::custom_resources_are_served_once_they_are_defined,
        kubernetes::api::a_watch_shows_every_change_in_order,
        kubernetes::api::server_side_apply_merges_fields_and_refuses_conflicts,
        kubernetes::api::a_paged_list_is_complete_and_of_one_moment,
    ];
    let on_git = scenarios![
        git::the_log_reads_like_an_audit_log,
        git::an_object_is_json_with_one_field_a_line,
        git::what_is_renewed_all_the_time_is_not_committed,
        git::fsck_is_clean_while_writes_go_on,
        git::a_plain_clone_has_the_objects_as_files,
        past::kubectl_shows_the_past_and_cannot_change_it,
        people::a_push_changes_a_live_object_and_a_broken_one_changes_nothing,
        people::a_push_to_the_git_host_changes_a_live_object_and_a_broken_one_is_refused,
        people::a_push_is_tried_at_the_kube_apiserver_before_it_enters,
        people::a_kind_that_kube_apiserver_cannot_list_is_in_the_status_until_a_push_repairs_it,
        people::informers_follow_merges_of_hundreds_of_keys,
    ];
    all.extend(on_git.into_iter().map(Scenario::on_git));
    run(&Options { git_host: true, tries_pushes: true, ..Options::default() }, Order::AtOnce, all)
}
