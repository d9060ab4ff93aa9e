//! Trishanku in a cluster that runs pods: its installation, by the commands that users type.
//!
//! The scenarios share one node and run in order. `make test-cluster` prepares their requirements and sets
//! `TRISHANKU_E2E_CLUSTER`; without it they are ignored. So are those with the published manifests, unless `PUBLISHED_SAMPLES`
//! names the folder with these.

mod beside;
mod chaos;
mod headless;
mod host_certificate;
mod images;
mod injection;
mod install;
mod security;
mod survives;
mod trouble;
mod workloads;
mod world;

use std::process::ExitCode;

use trishanku_e2e::{Order, nodes, run_on, scenarios};

use crate::world::World;

/// Scenarios that run without the published manifests.
const ALONE: [&str; 5] = ["images::", "injection::", "install::", "security::a_controller", "workloads::"];

fn main() -> ExitCode {
    if let Some(code) = nodes::host::init() {
        return code;
    }
    let scenarios = scenarios![
        images::images_have_no_shell_run_as_nobody_and_list_what_they_consist_of,
        install::one_command_installs_the_manager,
        install::a_first_heaven_is_ready_where_pods_have_to_be_restricted,
        workloads::replicas_and_nodes_have_branches_of_their_own,
        injection::pods_of_a_labelled_namespace_get_heavens,
        headless::the_published_samples_become_a_cluster_whose_controllers_agree,
        security::all_that_is_injected_is_restricted_and_the_exceptions_are_those_of_users,
        security::a_controller_reaches_no_store_past_its_role,
        headless::a_deployment_is_scaled_updated_set_back_and_deleted,
        beside::ten_replicas_are_bound_in_pods_as_in_one_control_plane,
        survives::the_pod_of_a_heaven_is_deleted_and_its_branch_goes_on,
        survives::a_component_is_upgraded_and_set_back_and_its_branch_goes_on,
        survives::a_heaven_with_a_volume_claim_loses_nothing_with_its_pod,
        headless::a_headless_cluster_is_made_as_the_documentation_says,
        trouble::what_is_wrong_is_reported_with_a_reason_and_what_the_documentation_says_of_it_helps,
        survives::the_manager_is_killed_upgraded_and_downgraded_and_no_heaven_restarts,
        survives::a_clone_is_a_backup_from_which_all_begin_again,
        chaos::whatever_is_killed_or_cut_off_all_agree_soon_after_and_nothing_acknowledged_is_lost,
        install::uninstalling_leaves_nothing,
    ];
    let is_wanted = nodes::wanted().is_some();
    if !is_wanted {
        eprintln!("TRISHANKU_E2E_CLUSTER is not set, so nothing is started; run `make test-cluster`");
    }
    let has_samples = std::env::var_os("PUBLISHED_SAMPLES").is_some_and(|folder| !folder.is_empty());
    if is_wanted && !has_samples {
        eprintln!("PUBLISHED_SAMPLES names no folder with published samples, so their scenarios are ignored");
    }
    run_on(World::start, Order::OneByOne, scenarios, move |scenario| {
        let is_alone = ALONE.iter().any(|module| scenario.name().starts_with(module));
        !(is_wanted && (has_samples || is_alone))
    })
}
