//! Kills of single programs, and restarts of everything.

mod lifecycle;
mod store_killed;

use std::process::ExitCode;

use trishanku_e2e::{Options, Order, run, scenarios};

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
    run(&Options::default(), Order::OneByOne, all)
}
