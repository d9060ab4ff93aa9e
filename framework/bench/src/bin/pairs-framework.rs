//! The controller of pairs, on the framework.

use std::sync::Arc;

use anyhow::Result;
use clap::Parser;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use tokio::signal::unix::{SignalKind, signal};
use trishanku_framework::apply::{ApplyError, Owned};
use trishanku_framework::serve::{Address, Addresses, Server};
use trishanku_framework::status::Report;
use trishanku_framework::{Action, Context, Controller, Kinds, Manager, StatusReconciler, telemetry};
use trishanku_framework_bench::options::Options;
use trishanku_framework_bench::pair::{MANAGER, Pair, PairStatus};

struct Pairs {
    settings: Owned<ConfigMap>,
    keys: Owned<Secret>,
}

impl StatusReconciler for Pairs {
    type Object = Pair;
    type Error = ApplyError;

    async fn reconcile(
        &self,
        pair: Arc<Pair>,
        _: &mut PairStatus,
        context: Context,
    ) -> Result<(Report, Action), ApplyError> {
        let mut set = context.apply_set(&*pair);
        set.apply(pair.settings(), &self.settings).await?;
        set.apply(pair.key(), &self.keys).await?;
        Ok((Report::ready("Succeeded", ""), Action::Change))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let telemetry = telemetry::Settings::new(MANAGER).init()?;
    let metrics = Address::One(options.metrics_bind_address);
    let server = Server::bind(&Addresses { metrics, ..Addresses::default() }).await?;
    let manager = Manager::new(kube::Config::infer().await?).telemetry(&telemetry).serve(server);
    let pairs = |kinds: &mut Kinds<'_>| Pairs { settings: kinds.owned(), keys: kinds.owned() };
    let controller = Controller::with_status("pair", pairs)
        .field_manager(MANAGER)
        .without_events()
        .concurrency(options.concurrency.into())
        .resync(Some(options.resync()));
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        let _signal = terminate.recv().await;
    };
    manager.controller(controller).run(stop).await?;
    Ok(())
}
