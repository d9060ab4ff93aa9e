//! Kills of single programs, and restarts of everything.

mod lifecycle;
mod migrated;
mod store_killed;

use std::process::ExitCode;

use trishanku::plane::state::Store;
use trishanku_e2e::{Cluster, Options, Order, Scenario, run_groups, scenarios};

fn main() -> ExitCode {
    let all = scenarios![
        store_killed::a_watch_goes_on_without_a_gap_when_the_store_is_killed,
        store_killed::acknowledged_objects_are_all_there_after_the_store_was_killed,
        lifecycle::everything_continues_with_the_same_data_after_a_restart,
        lifecycle::a_killed_component_is_started_again,
        lifecycle::a_second_up_is_refused_while_one_runs,
        lifecycle::one_in_the_background_stays_until_down,
        lifecycle::what_a_killed_supervisor_leaves_is_ended_by_the_next_up,
        lifecycle::what_a_killed_supervisor_leaves_is_ended_by_down,
        lifecycle::a_taken_port_is_replaced_and_the_data_stays,
        lifecycle::protobuf_objects_continue_beside_json_ones,
    ];
    let on_etcd = scenarios![migrated::a_cluster_on_etcd_moves_to_gitcd_while_it_is_used];
    let on_etcd = on_etcd.into_iter().map(Scenario::on_git).collect();
    let start = |store| move || Cluster::start(Options { store, ..Options::default() });
    run_groups(Order::OneByOne, vec![(Box::new(start(None)), all), (Box::new(start(Some(Store::Etcd))), on_etcd)])
}
