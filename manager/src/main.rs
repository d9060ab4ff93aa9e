//! Runs the controllers of Trishanku: heavens, merges and repositories.

mod args;

use std::sync::Arc;

use clap::Parser as _;
use time::OffsetDateTime;
use trishanku_framework::cache::Scope;
use trishanku_framework::serve::{Addresses, Server};
use trishanku_framework::{Manager, lease, stop_signal, telemetry};

use crate::args::{Args, Command};

/// The lease's name, and that of the service in traces.
const NAME: &str = "trishanku-manager";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(Command::Crds) = args.command {
        print!("{}", trishanku_api::definitions());
        return Ok(());
    }
    let telemetry = telemetry::Settings::new(NAME).init()?;
    let addresses = Addresses {
        probes: args.health_probe_bind_address,
        metrics: args.metrics_bind_address,
        debug: args.debug_bind_address,
    };
    let server = Server::bind(&addresses).await?;
    let scope = if args.namespaces.is_empty() { Scope::All } else { Scope::namespaces(args.namespaces.clone()) };
    let config = kube::Config::infer().await?;
    let mut manager = Manager::with_scope(config, scope).telemetry(&telemetry).serve(server);
    if args.leader_elect {
        manager = manager.leader_election(lease::Settings::new(&args.leader_election_namespace, NAME));
    }
    tracing::info!(version = env!("CARGO_PKG_VERSION"), leader_elect = args.leader_elect, "begins");
    let heavens = trishanku_heaven::controller(&manager, args.images(), Arc::new(OffsetDateTime::now_utc));
    let merges = trishanku_automerge::controller(&manager, args.images());
    let repositories = trishanku_github::controller(&manager, trishanku_github::Terms::default());
    manager.controller(heavens).controller(merges).controller(repositories).run(stop_signal()?).await?;
    telemetry.end().await;
    Ok(())
}
