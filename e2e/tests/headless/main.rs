//! A headless cluster on this machine, started by `trishanku up`: as a star, as a star with faults, and as a mesh.

mod allocated;
mod any;
mod apart;
mod deleted;
mod killed;
mod quiet;
mod show;
mod upstream;

use std::process::ExitCode;

use anyhow::Context as _;
use trishanku_e2e::{Cluster, Options, Order, Shape, Start, is_long, run_groups, scenarios};

fn main() -> ExitCode {
    let mut star = scenarios![
        show::the_demo_shows_which_branch_did_what,
        show::a_kept_demo_stays_when_others_run,
        deleted::what_is_deleted_a_moment_after_it_was_created_stays_deleted,
        quiet::no_branch_moves_for_a_minute,
        apart::both_sides_work_on_while_the_merge_stands_still_and_agree_after,
        allocated::what_two_branches_gave_away_at_once_is_one_service_s_and_the_other_gets_others,
        show::it_goes_on_after_down_and_up,
    ];
    let mut broken_star = scenarios![
        apart::each_heaven_in_turn_is_cut_off_while_all_work_on,
        killed::every_process_is_killed_in_turn_and_nothing_acknowledged_is_lost,
        upstream::upstream_is_replaced_by_a_clone_of_itself,
        upstream::upstream_is_set_back_and_gets_the_newer_work_again,
    ];
    // With a third-party controller.
    let mut mesh = scenarios![
        any::mesh_somebody_elses_controller_works_in_a_heaven_of_its_own,
        show::mesh_the_demo_shows_which_branch_did_what,
        deleted::mesh_what_is_deleted_a_moment_after_it_was_created_stays_deleted,
        quiet::mesh_no_branch_moves_for_a_while,
        quiet::mesh_a_node_that_lives_changes_its_lease_and_nothing_else,
        apart::mesh_both_sides_work_on_while_one_is_cut_off_and_agree_after,
    ];
    if is_long() {
        // Before the last one, which stops the cluster.
        let last = star.pop();
        star.extend(scenarios![quiet::a_node_that_lives_changes_its_lease_and_nothing_else]);
        star.extend(last);
        broken_star.extend(scenarios![apart::both_sides_work_on_while_one_is_cut_off_and_agree_after]);
        mesh.extend(scenarios![killed::mesh_every_process_is_killed_in_turn_and_nothing_acknowledged_is_lost]);
    }
    // Concurrently, unless there is time: each scenario waits most of the time. Counting commits requires an otherwise idle
    // machine.
    let order = if is_long() { Order::OneByOne } else { Order::InTurns };
    run_groups(order, vec![(on(Shape::Star), star), (on(Shape::Star), broken_star), (on(Shape::Mesh), mesh)])
}

/// Starts a cluster.
fn on(shape: Shape) -> Start {
    Box::new(move || {
        let arguments = match shape {
            Shape::Mesh => any::arguments().context("cannot build the sample controller")?,
            Shape::Central | Shape::Star => Vec::new(),
        };
        Cluster::start(Options { shape, arguments, ..Options::default() })
    })
}
