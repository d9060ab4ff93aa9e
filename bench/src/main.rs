//! Measures gitcd side by side with etcd.
//!
//! [`server`] starts both as processes, and [`bare_wire`] beside them; [`run`] gives them turns under each [`workload`], and
//! [`report`] formats the results. A [`driver`] is a client of a workload: the [`go_client`], or the Rust client, which sends
//! requests through [`client`] and is driven by [`load`]. Both see a server as a [`target`]. The other measurements are
//! [`idle`], [`memory`], [`growth`], [`kube`], [`storage`], [`branches`], [`headless`] and [`hostile`].

mod args;
mod bare_wire;
mod branches;
mod chart;
mod client;
mod compact;
mod data;
mod disk;
mod driver;
mod go_client;
mod growth;
mod growth_plan;
mod headless;
mod hostile;
mod idle;
mod kube;
mod lag;
mod load;
mod memory;
mod report;
mod run;
mod server;
mod steady;
mod storage;
mod storage_plan;
mod target;
mod workload;
mod writers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use gitcd_bench::output::now;
use gitcd_bench::{child, machine, process};
use tokio::signal::unix::{SignalKind, signal};
use trishanku::plane::Assets;

use crate::args::{Args, Branches, Command, Compare, Growth, Headless, Hostile, Idle, Kube, Memory, Storage};
use crate::idle::IdleCost;
use crate::machine::Machine;
use crate::report::compare::Report;
use crate::report::document::Section;
use crate::run::Plan;
use crate::server::Kind;
use crate::target::Target;

/// Revisions between compactions that do not happen.
const NEVER: i64 = i64::MAX / 4;

fn main() -> ExitCode {
    match measure(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("gitcd-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> Result<ExitCode> {
    if let Some(Command::BareWire(options)) = &args.command {
        bare_wire::run(options, stop_signal())?;
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(args.threads()).enable_all().build()?;
    runtime.block_on(async {
        let work = async {
            match &args.command {
                None => compare(args, &args.compare).await,
                Some(Command::BareWire(_)) => unreachable!("it runs in a runtime of its own"),
                Some(Command::IdleCost(idle)) => idle_cost(args, idle).await,
                Some(Command::Memory(memory)) => memory_of_both(args, memory).await,
                Some(Command::Growth(options)) => growing(args, options).await,
                Some(Command::Kube(kube)) => through_kube_apiserver(args, kube).await,
                Some(Command::Storage(options)) => git_as_a_database(args, options).await,
                Some(Command::Branches(branches)) => following(args, branches).await,
                Some(Command::Headless(options)) => headless_cluster(args, options).await,
                Some(Command::Hostile(options)) => beside_hostile_requests(args, options).await,
            }
        };
        // Dropping the measurement kills its servers and removes their folders.
        tokio::select! {
            done = work => done,
            stopped = stop_signal() => {
                stopped?;
                bail!("interrupted; the servers are stopped and their data is removed");
            }
        }
    })
}

async fn stop_signal() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
    }
    Ok(())
}

async fn compare(args: &Args, options: &Compare) -> Result<ExitCode> {
    let (workloads, clients) = (options.workloads()?, options.clients(args)?);
    let servers = options.servers()?;
    let folder = data_folder(args.dir.as_deref())?;
    let machine = look(&folder);
    let date = now();
    let mut targets = Vec::new();
    for (kind, label) in servers {
        targets.push(start(args, kind, label, &folder, options.compact_every).await?);
    }
    let plan = Plan { seconds: options.seconds(), quiet: options.quiet() };
    let measured = run::run(&targets, &workloads, &clients, plan).await?;
    for target in targets {
        target.server.stop().await?;
    }
    let report = Report {
        command: options.command(args),
        date,
        machine,
        connections: args.connections,
        client_threads: args.threads(),
        languages: clients.languages,
        compact_every: options.compact_every,
        quiet_seconds: plan.quiet.as_secs_f64(),
        measured,
    };
    options.output.deliver(&report, &report.tables(), Section::Comparison, &report.section())?;
    Ok(exit_code(!report.failed()))
}

async fn idle_cost(args: &Args, options: &Idle) -> Result<ExitCode> {
    let folder = data_folder(args.dir.as_deref())?;
    let machine = look(&folder);
    let kind = options.server;
    let target = start(args, kind, kind.name().to_owned(), &folder, NEVER).await?;
    let command = options.command(args);
    let cost: IdleCost = idle::measure(&target, options.seconds, machine, command, now()).await?;
    target.server.stop().await?;
    options.output.deliver(&cost, &cost.table(), Section::IdleCost, &cost.section())?;
    Ok(exit_code(cost.good()))
}

async fn memory_of_both(args: &Args, options: &Memory) -> Result<ExitCode> {
    let folder = data_folder(args.dir.as_deref())?;
    let (machine, date) = (look(&folder), now());
    let mut cases = Vec::new();
    for plan in options.plans() {
        let mut sides = Vec::new();
        for (kind, label) in labelled(&options.servers)? {
            let target = start(args, kind, label, &folder, plan.compact_every.unwrap_or(NEVER)).await?;
            sides.push(memory::measure(&target, plan).await?);
            target.server.stop().await?;
        }
        cases.push(memory::Case { plan, sides });
    }
    let measured = memory::Measured { command: options.command(args), date, machine, cases };
    options.output.deliver(&measured, &measured.tables(), Section::Memory, &measured.section())?;
    Ok(exit_code(measured.good()))
}

async fn through_kube_apiserver(args: &Args, options: &Kube) -> Result<ExitCode> {
    let folder = data_folder(args.dir.as_deref())?;
    let (machine, date) = (look(&folder), now());
    let assets = Assets::find(options.assets.as_deref())?;
    let mut targets = Vec::new();
    for (kind, label) in labelled(&options.servers)? {
        // kube-apiserver compacts by itself.
        targets.push(start_with(args, kind, label, &folder, NEVER, &kube::store_arguments(kind)).await?);
    }
    let plan = kube::Plan {
        objects: options.objects,
        rounds: options.rounds,
        writers: options.clients,
        connections: args.connections,
        media_type: options.storage_media_type.clone(),
    };
    let outcome = kube::run(&targets, &assets, &folder, &plan).await?;
    for target in targets {
        target.server.stop().await?;
    }
    let (command, client_threads) = (options.command(args), args.threads());
    let measured = kube::Measured { command, date, machine, client_threads, plan, outcome };
    options.output.deliver(&measured, &measured.tables(), Section::Kube, &measured.section())?;
    Ok(ExitCode::SUCCESS)
}

async fn git_as_a_database(args: &Args, options: &Storage) -> Result<ExitCode> {
    let folder = data_folder(args.dir.as_deref())?;
    let plan = options.plan();
    let mut measured = storage::Measured {
        command: options.command(args),
        date: now(),
        machine: look(&folder),
        version: args.program(Kind::Gitcd)?.own_version().unwrap_or_default(),
        plan,
        history: None,
        pace: None,
        directory: None,
        starts: None,
    };
    storage::run(args, &folder, plan, &options.only, &mut measured).await?;
    options.output.deliver(&measured, &measured.tables(), Section::Storage, &measured.section())?;
    Ok(exit_code(measured.good()))
}

async fn growing(args: &Args, options: &Growth) -> Result<ExitCode> {
    let folder = data_folder(args.dir.as_deref())?;
    let own = args.program(Kind::Gitcd)?.own_version().unwrap_or_default();
    let mut measured = growth::Measured {
        command: options.command(args),
        date: now(),
        machine: look(&folder),
        versions: vec![format!("gitcd {own}")],
        plan: options.plan(),
        keys: None,
        lists: None,
        watchers: None,
        stars: Vec::new(),
    };
    growth::run(args, &folder, &options.only, &mut measured).await?;
    options.output.deliver(&measured, &measured.tables(), Section::Growth, &measured.section())?;
    if let Some(document) = &options.output.write {
        let images = document.with_file_name("images");
        fs::create_dir_all(&images).with_context(|| format!("cannot create {}", images.display()))?;
        for (name, svg) in measured.charts() {
            let path = images.join(format!("{name}.svg"));
            fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(exit_code(measured.good()))
}

async fn following(args: &Args, options: &Branches) -> Result<ExitCode> {
    let folder = data_folder(args.dir.as_deref())?;
    let (machine, date) = (look(&folder), now());
    let Branches { seconds, rate, keys, changes, rounds, .. } = *options;
    let plan = branches::Plan { seconds, rate, keys, changes, rounds };
    let program = args.program(Kind::Gitcd)?;
    let (version, propagations, merges) =
        branches::run(&program, &folder, plan, &options.only, args.connections).await?;
    let command = options.command(args);
    let measured = branches::Measured { command, date, machine, version, plan, propagations, merges };
    options.output.deliver(&measured, &measured.tables(), Section::Branches, &measured.section())?;
    Ok(ExitCode::SUCCESS)
}

async fn headless_cluster(args: &Args, options: &Headless) -> Result<ExitCode> {
    let folder = data_folder(args.dir.as_deref())?;
    let (machine, date) = (look(&folder), now());
    let Headless { tries, replicas, deployments, pods_each, idle_seconds, .. } = *options;
    let plan = headless::Plan { tries, replicas, deployments, pods_each, idle_seconds };
    let own = std::env::current_exe()?;
    let trishanku = own.with_file_name("trishanku");
    let gitcd = args.gitcd().map_or_else(|| own.with_file_name("gitcd"), ToOwned::to_owned);
    let shapes = options.only.clone();
    let outcomes =
        tokio::task::spawn_blocking(move || headless::run(&trishanku, &gitcd, &folder, &shapes, plan)).await??;
    let measured = headless::Measured { command: options.command(), date, machine, plan, outcomes };
    options.output.deliver(&measured, &measured.tables(), Section::Headless, &measured.section())?;
    Ok(exit_code(measured.good()))
}

async fn beside_hostile_requests(args: &Args, options: &Hostile) -> Result<ExitCode> {
    let folder = data_folder(args.dir.as_deref())?;
    let (machine, date) = (look(&folder), now());
    let plan = hostile::Plan { seconds: options.seconds, rate: options.rate };
    let program = args.program(Kind::Gitcd)?;
    let (version, alone, beside) = hostile::run(program, &folder, plan, options.attacks(), args.connections).await?;
    let command = options.command(args);
    let measured = hostile::Measured { command, date, machine, version, plan, alone, beside };
    options.output.deliver(&measured, &measured.table(), Section::Hostile, &measured.section())?;
    Ok(exit_code(measured.good()))
}

/// Two servers with their names in the report.
fn labelled(servers: &[Kind]) -> Result<Vec<(Kind, String)>> {
    ensure!(servers.len() == 2 && !servers.contains(&Kind::BareWire), "--compare requires two of gitcd and etcd");
    Ok(server::labelled(servers))
}

async fn start(args: &Args, kind: Kind, label: String, folder: &Path, compact_every: i64) -> Result<Target> {
    start_with(args, kind, label, folder, compact_every, &[]).await
}

async fn start_with(
    args: &Args,
    kind: Kind,
    label: String,
    folder: &Path,
    compact_every: i64,
    more: &[String],
) -> Result<Target> {
    let server = args.program(kind)?.with(more).start(label, folder).await?;
    eprintln!("{} {} runs as process {}", server.label, server.version, server.pid());
    Target::connect(server, args.connections, compact_every).await
}

/// The folder for the servers' folders: on a disk, so not the system's temporary folder.
fn data_folder(given: Option<&Path>) -> Result<PathBuf> {
    let folder = match given {
        Some(given) => given.to_owned(),
        None => std::env::current_exe()?.parent().context("the program has no parent folder")?.join("gitcd-bench-data"),
    };
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}; set --dir", folder.display()))?;
    Ok(folder)
}

fn look(folder: &Path) -> Machine {
    let machine = Machine::look(folder);
    if machine.in_memory() {
        eprintln!("warning: {} is in memory, where an fsync costs nothing", folder.display());
    }
    machine
}

fn exit_code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
