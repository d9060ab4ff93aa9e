//! `trishanku`: Kubernetes controllers on Git branches of their own, on this machine.

mod args;
mod at;
mod cluster;
mod console;
mod detach;
mod doctor;
mod erase;
mod graph;
mod history;
mod kubectl;
mod lint;
mod location;
mod logs;
mod objects;
mod plugin;
mod print;
mod seconds;
mod start;
mod stops;
mod styles;
mod ui;
mod undo;

use std::process::ExitCode;

use anyhow::Context;
use clap::FromArgMatches;
use trishanku::demo::Demo;
use trishanku::status::Health;

use crate::args::{Arguments, Command, New};

/// Exit code of `status` unless everything is ready, as service managers do it.
const NOT_READY: u8 = 3;
/// Exit code of `diff` if the comparison failed.
const COMPARISON_FAILED: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::from_arg_matches(&plugin::named(args::command()).get_matches());
    let arguments = arguments.unwrap_or_else(|error| error.exit());
    // The work is waiting for processes and sockets, so one thread suffices.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the event loop");
    let outcome = runtime.and_then(|runtime| {
        let outcome = runtime.block_on(run(&arguments));
        // What still runs on other threads, such as a read for a page of a browser that is gone, does not delay the end.
        runtime.shutdown_background();
        outcome
    });
    outcome.unwrap_or_else(|error| {
        print::error(&error);
        ExitCode::FAILURE
    })
}

async fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let home = || arguments.which.home();
    let program = console::program_line(arguments.which.selector());
    let place = || {
        let heaven = arguments.which.heaven.clone();
        anyhow::Ok(undo::Place { home: arguments.which.home()?, heaven, program: program.clone() })
    };
    match &arguments.command {
        Command::Up(options) => start::up(options, home()?, program).await,
        Command::Run(options) => start::run(options, home()?, program).await,
        Command::Down => {
            let home = home()?;
            let outcome = tokio::task::spawn_blocking(move || trishanku::down::down(&home));
            print::down(&outcome.await??);
            Ok(ExitCode::SUCCESS)
        }
        Command::Delete(options) => erase::run(options, home()?).await,
        Command::List(options) => {
            print::list(&trishanku::list::list()?, options.json)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Status(options) => {
            let report = trishanku::status::read(&home()?)?.with_store_figures().await.with_kinds().await;
            print::status(&report, options.json)?;
            Ok(match report.health {
                Health::Ready => ExitCode::SUCCESS,
                _ => ExitCode::from(NOT_READY),
            })
        }
        Command::Doctor(options) => doctor::run(&home()?, &program, options).await,
        Command::Logs(options) => logs::run(&home()?, arguments.which.heaven.as_deref(), options),
        Command::Kubectl { args } => {
            Err(kubectl::become_kubectl(&home()?, arguments.which.heaven.as_deref(), args, &program))
        }
        Command::Graph { args } => Err(graph::become_graph(&home()?, arguments.which.heaven.as_deref(), args)),
        Command::Log(options) => {
            history::become_log(&home()?, arguments.which.heaven.as_deref(), options)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Blame(options) => {
            history::become_blame(&home()?, arguments.which.heaven.as_deref(), options)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Diff(options) => {
            let done = history::become_diff(&home()?, arguments.which.heaven.as_deref(), options);
            // As `diff` does: 1 means that there are differences.
            Ok(done.map_or_else(
                |error| {
                    print::error(&error);
                    ExitCode::from(COMPARISON_FAILED)
                },
                |()| ExitCode::SUCCESS,
            ))
        }
        Command::At(options) => at::run(&home()?, arguments.which.heaven.as_deref(), options).await,
        Command::Undo(options) => undo::undo(&place()?, options).await,
        Command::Restore(options) => undo::restore(&place()?, options).await,
        Command::Undelete(options) => undo::undelete(&place()?, options).await,
        Command::Ui(options) => ui::run(place()?, options).await,
        Command::Demo(options) => {
            let demo = Demo { home: home()?, replicas: options.replicas, keep: options.keep };
            let outcome = tokio::task::spawn_blocking(move || demo.run()).await??;
            print::demo(&outcome, options)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Allocations { kubeconfig } => {
            trishanku::allocations::run(kubeconfig, &mut stops::requests(false)?).await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Lint(options) => lint::run(options),
        Command::New { what: New::Controller(new) } => {
            let here = std::env::current_dir().context("there is no current folder")?;
            trishanku::scaffold::controller(&here, &new.called, &new.framework)?;
            print::new_controller(&new.called);
            Ok(ExitCode::SUCCESS)
        }
        Command::Completion { shell } => {
            let mut command = args::command();
            clap_complete::generate(*shell, &mut command, "trishanku", &mut trishanku_stdio::plain_stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { folder } => {
            clap_mangen::generate_to(args::command(), folder)
                .with_context(|| format!("cannot write to {}", folder.display()))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
