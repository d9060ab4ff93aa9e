//! `trishanku doctor`: what of this machine and of a control plane is, or will become, a problem, and the remedies.
//!
//! Each check is a pure function of facts, which the same module collects.

mod branches;
mod certificates;
mod check;
mod cluster;
mod folder;
mod machine;
mod print;
mod processes;
mod programs;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use time::OffsetDateTime;
use trishanku::plane::state::StateError;
use trishanku::plane::{Home, Registry, State};
use trishanku::status::{self, Health, Report};

use self::check::{Area, Check, Diagnosis};

/// Exit code if a check fails.
const FAILED: u8 = 3;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku doctor                  this machine, and the default control plane if there is one
  trishanku --name b doctor
  trishanku doctor --json           for programs; see docs/cluster.md

Exits with 0 if no check fails, and otherwise with 3; warnings are no failures. It changes nothing.
It writes a temporary file of 80 KiB in the state folder, and removes it. It prints no values of
keys and no lines of logs.")]
pub(crate) struct Doctor {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[arg(
        long,
        value_name = "DIR",
        help = "The folder of the Kubernetes programs [default: $TRISHANKU_ASSETS, $KUBEBUILDER_ASSETS, what `make assets` made]"
    )]
    assets: Option<PathBuf>,
    /// gitcd program [default: the one beside trishanku, else on PATH]
    #[arg(long, env = "TRISHANKU_GITCD", value_name = "PROGRAM")]
    gitcd: Option<PathBuf>,
}

/// Runs all checks, and prints them.
///
/// # Errors
/// If standard output cannot be written.
pub(crate) async fn run(home: &Home, program: &str, options: &Doctor) -> anyhow::Result<ExitCode> {
    let report = status::read(home);
    let is_running = report.as_ref().is_ok_and(|report| report.health != Health::Stopped);
    let mut checks = programs::check(options.assets.as_deref(), options.gitcd.as_deref()).await;
    checks.extend(machine::check(is_running).await);
    checks.extend(folder::check(home).await);
    checks.extend(cluster(home, report, program).await);
    let diagnosis = Diagnosis::of(home.dir(), checks);
    print::print(&diagnosis, options.json)?;
    Ok(if diagnosis.failures > 0 { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

/// Checks the control plane, if there is one.
async fn cluster(home: &Home, report: Result<Report, StateError>, program: &str) -> Vec<Check> {
    let mut checks = cluster::leftovers(home, program, Registry::of_user().map(|registry| registry.entries()));
    if !home.is_used() {
        let detail = format!("there is no control plane in {}", home.dir().display());
        checks.push(Check::skipped(Area::Cluster, "supervisor", detail));
        return checks;
    }
    let (state, report) = match (State::load(&home.state_file()), report) {
        (Ok(state), Ok(report)) => (state, report),
        (Err(error), _) | (_, Err(error)) => {
            let remedy = "restore the file, or follow the message";
            checks.push(Check::failure(Area::Cluster, "state", error.to_string(), remedy));
            return checks;
        }
    };
    let report = report.with_store_figures().await.with_kinds().await;
    checks.push(cluster::supervisor(report.health, report.supervisor_pid, program));
    checks.extend(cluster::components(&report.components, report.health, program));
    checks.extend(cluster::kinds(&report.unlistable));
    checks.extend(branches::check(&report));
    checks.extend(processes::check(&state, program));
    let now = OffsetDateTime::from(SystemTime::now()).unix_timestamp();
    checks.extend(certificates::check(&certificates::found(home), now, state.is_supervised(), program));
    checks
}
