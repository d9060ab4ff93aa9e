//! The controller of pairs, on the framework.

use std::sync::Arc;

use anyhow::Result;
use clap::Parser;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use tokio::signal::unix::{SignalKind, signal};
use trishanku_framework::apply::{ApplyError, ApplySet};
use trishanku_framework::cache::Cache;
use trishanku_framework::serve::{Address, Addresses, Server};
use trishanku_framework::status::StatusWriter;
use trishanku_framework::{Action, Context, Controller, Failure, Manager, Reconciler, Retry, telemetry};
use trishanku_framework_bench::options::Options;
use trishanku_framework_bench::pair::{MANAGER, Pair};

struct Pairs {
    objects: Arc<Cache<Pair>>,
    settings: Arc<Cache<ConfigMap>>,
    keys: Arc<Cache<Secret>>,
    status: StatusWriter,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Api(#[from] kube::Error),
}

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Apply(error) => error.reason(),
            Self::Api(error) => error.reason(),
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Apply(error) => error.retry(),
            Self::Api(error) => error.retry(),
        }
    }
}

impl Pairs {
    async fn converge(&self, pair: &Pair, context: &Context) -> Result<Action, Error> {
        let mut set = ApplySet::of(pair, context.client.clone(), MANAGER);
        set.apply(pair.settings(), &self.settings).await?;
        set.apply(pair.key(), &self.keys).await?;
        Ok(Action::Change)
    }
}

impl Reconciler for Pairs {
    type Object = Pair;
    type Error = Error;

    async fn reconcile(&self, pair: Arc<Pair>, context: Context) -> Result<Action, Error> {
        let result = self.converge(&pair, &context).await;
        let (before, status) = (pair.status.as_ref(), pair.status.clone().unwrap_or_default());
        self.status.write_result(&context.client, &self.objects, &*pair, before, status, result).await
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let telemetry = telemetry::Settings::new(MANAGER).init()?;
    let metrics = Address::One(options.metrics_bind_address);
    let server = Server::bind(&Addresses { metrics, ..Addresses::default() }).await?;
    let manager = Manager::new(kube::Config::infer().await?).telemetry(&telemetry).serve(server);
    let status = StatusWriter::new(MANAGER).without_events();
    let pairs = Pairs { objects: manager.cache(), settings: manager.cache(), keys: manager.cache(), status };
    let controller = Controller::new("pair", pairs)
        .owns::<ConfigMap>()
        .owns::<Secret>()
        .concurrency(options.concurrency.into())
        .resync(Some(options.resync()));
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        let _signal = terminate.recv().await;
    };
    manager.controller(controller).run(stop).await?;
    Ok(())
}
