//! The controller of pairs, on bare kube-runtime.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::routing::get;
use clap::Parser;
use futures::{Stream, StreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{Controller, PredicateConfig, WatchStreamExt, predicates, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::OnceCell;
use trishanku_framework_bench::options::Options;
use trishanku_framework_bench::pair::{MANAGER, Pair, PairStatus};

struct Context {
    client: Client,
    settings: Store<ConfigMap>,
    keys: Store<Secret>,
    are_ready: OnceCell<()>,
    reconciled: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Store(#[from] reflector::store::WriterDropped),
    #[error("a pair is in no namespace")]
    NoNamespace,
}

async fn reconcile(pair: Arc<Pair>, context: Arc<Context>) -> Result<Action, Error> {
    // Empty stores would cause another apply of everything. A single task waits for them: kube-runtime 5 forgets to wake all
    // but one of several.
    let are_filled = || async {
        context.settings.wait_until_ready().await?;
        context.keys.wait_until_ready().await
    };
    context.are_ready.get_or_try_init(are_filled).await?;
    let namespace = pair.namespace().ok_or(Error::NoNamespace)?;
    let owner = Some(pair.controller_owner_ref(&()).into_iter().collect());
    let parameters = PatchParams::apply(MANAGER).force();

    let mut settings = pair.settings();
    settings.metadata.owner_references.clone_from(&owner);
    let live = context.settings.get(&ObjectRef::from_obj(&settings));
    let same = |live: &ConfigMap| live.data == settings.data && live.metadata.owner_references == owner;
    if !live.is_some_and(|live| same(&live)) {
        let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace);
        api.patch(&settings.name_any(), &parameters, &Patch::Apply(&settings)).await?;
    }

    let mut key = pair.key();
    key.metadata.owner_references.clone_from(&owner);
    let live = context.keys.get(&ObjectRef::from_obj(&key));
    let same = |live: &Secret| live.data == key.data && live.metadata.owner_references == owner;
    if !live.is_some_and(|live| same(&live)) {
        let api: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
        api.patch(&key.name_any(), &parameters, &Patch::Apply(&key)).await?;
    }

    if !pair.is_ready() {
        let status = json!({
            "apiVersion": Pair::api_version(&()),
            "kind": Pair::kind(&()),
            "metadata": {"name": pair.name_any(), "uid": pair.uid()},
            "status": ready(&pair),
        });
        let api: Api<Pair> = Api::namespaced(context.client.clone(), &namespace);
        api.patch_status(&pair.name_any(), &parameters, &Patch::Apply(&status)).await?;
    }
    context.reconciled.fetch_add(1, Ordering::Relaxed);
    Ok(Action::await_change())
}

fn ready(pair: &Pair) -> PairStatus {
    let now = Timestamp::now();
    let ready = Condition {
        type_: "Ready".to_owned(),
        status: "True".to_owned(),
        reason: "Succeeded".to_owned(),
        message: String::new(),
        observed_generation: pair.metadata.generation,
        last_transition_time: Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
    };
    PairStatus { observed_generation: pair.metadata.generation, conditions: vec![ready] }
}

#[expect(clippy::needless_pass_by_value, reason = "the signature is that of the controller's callback")]
fn error_policy(_: Arc<Pair>, error: &Error, context: Arc<Context>) -> Action {
    tracing::warn!(%error, "reconcile failed");
    context.failed.fetch_add(1, Ordering::Relaxed);
    Action::requeue(Duration::from_secs(1))
}

/// Returns a store, and the watch that fills it.
fn watched<K>(client: &Client) -> (Store<K>, impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let (store, writer) = reflector::store();
    let events = watcher(Api::<K>::all(client.clone()), watcher::Config::default());
    (store, events.default_backoff().reflect(writer))
}

fn every(period: Duration) -> impl Stream<Item = ()> + Send + 'static {
    let first = tokio::time::Instant::now() + period;
    let interval = tokio::time::interval_at(first, period);
    stream::unfold(interval, |mut interval| async move {
        interval.tick().await;
        Some(((), interval))
    })
}

/// The only two metrics that the benchmark reads.
async fn metrics(State(context): State<Arc<Context>>) -> String {
    let [success, error] = [&context.reconciled, &context.failed].map(|count| count.load(Ordering::Relaxed));
    let name = "controller_runtime_reconcile_total";
    format!(
        "{name}{{controller=\"pair\",result=\"success\"}} {success}\n{name}{{controller=\"pair\",result=\"error\"}} {error}\n"
    )
}

async fn serve(address: SocketAddr, context: Arc<Context>) -> Result<()> {
    let pages = Router::new().route("/metrics", get(metrics)).with_state(context);
    Ok(axum::serve(tokio::net::TcpListener::bind(address).await?, pages).await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt::init();
    let options = Options::parse();
    let client = Client::try_default().await?;
    let (pairs, pair_events) = watched::<Pair>(&client);
    let (settings, settings_events) = watched::<ConfigMap>(&client);
    let (keys, key_events) = watched::<Secret>(&client);
    let (reconciled, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let context = Arc::new(Context { client, settings, keys, are_ready: OnceCell::new(), reconciled, failed });
    tokio::spawn(serve(options.metrics_bind_address, context.clone()));
    let changed = pair_events.applied_objects().predicate_filter(predicates::generation, PredicateConfig::default());
    Controller::for_stream(changed, pairs)
        .owns_stream(settings_events.touched_objects())
        .owns_stream(key_events.touched_objects())
        .reconcile_all_on(every(options.resync()))
        .with_config(controller::Config::default().concurrency(options.concurrency))
        .shutdown_on_signal()
        .run(reconcile, error_policy, context)
        .for_each(|outcome| async move {
            match outcome {
                Ok((pair, _)) => tracing::debug!(%pair, "reconciled"),
                Err(error) => tracing::debug!(%error, "not reconciled"),
            }
        })
        .await;
    Ok(())
}
