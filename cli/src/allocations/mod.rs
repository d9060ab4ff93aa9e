//! Repairs cluster IPs and node ports that two branches assigned at once.
//!
//! Each kube-apiserver assigns what is free on its branch, so after a merge two Services may have the same cluster IP or
//! node port. kube-apiserver's own repair loops only report that. [`run`] leaves such an allocation to the oldest Service
//! and gives the others new ones; docs/design/headless.md explains why.

mod collision;
mod exchange;

use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::{IPAddress, IPAddressSpec, ParentReference};
use kube::api::{ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, Config, Resource as _, ResourceExt as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use self::collision::{Loser, losers};
use self::exchange::Exchange;
use crate::plane::supervisor::Stop;

/// The changes of one merge arrive object by object.
const SETTLE: Duration = Duration::from_millis(300);
/// Delay after a failure.
const AGAIN: Duration = Duration::from_secs(2);
const NAME: &str = "trishanku-allocations";

/// Why allocations cannot be repaired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocationsError {
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {path:?}")]
    Kubeconfig {
        /// The file.
        path: std::path::PathBuf,
        /// The error of the parser.
        source: kube::config::KubeconfigError,
    },
    /// Its certificates or credentials cannot be used.
    #[error("cannot use the certificates or credentials in the kubeconfig")]
    Client(#[source] kube::Error),
}

/// Watches the Services of one kube-apiserver and repairs their allocations until a request to stop.
///
/// # Errors
/// [`AllocationsError`] if it cannot start. Later failures are printed on standard error and retried.
pub async fn run(kubeconfig: &Path, stops: &mut mpsc::Receiver<Stop>) -> Result<(), AllocationsError> {
    let wrong = |source| AllocationsError::Kubeconfig { path: kubeconfig.into(), source };
    let read = Kubeconfig::read_from(kubeconfig).map_err(wrong)?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.map_err(wrong)?;
    let client = Client::try_from(config).map_err(AllocationsError::Client)?;
    let repairer = Repairer { recorder: Recorder::new(client.clone(), Reporter::from(NAME)), client };
    let (services, writer) = reflector::store();
    let all: Api<Service> = Api::all(repairer.client.clone());
    let changes = reflector(writer, watcher(all, watcher::Config::default())).default_backoff().touched_objects();
    let mut changes = std::pin::pin!(changes);
    let mut due: Option<Instant> = None;
    loop {
        tokio::select! {
            change = changes.next() => match change {
                Some(Ok(_)) => due = Some(Instant::now() + SETTLE),
                Some(Err(error)) => trishanku_stdio::eprintln!("cannot watch Services: {error}"),
                None => return Ok(()),
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                let known: Vec<Service> = services.state().iter().map(|service| (**service).clone()).collect();
                due = match repairer.repair(&known).await {
                    Ok(()) => None,
                    Err(error) => {
                        // Another client changed the Service in the meantime: the watch reports that soon.
                        if !is_conflict(&error) {
                            trishanku_stdio::eprintln!("{error}");
                        }
                        Some(Instant::now() + AGAIN)
                    }
                };
            }
            _ = stops.recv() => return Ok(()),
        }
    }
}

struct Repairer {
    client: Client,
    recorder: Recorder,
}

impl Repairer {
    /// Finishes the exchanges in progress, then starts those for Services that lost allocations.
    async fn repair(&self, services: &[Service]) -> kube::Result<()> {
        for service in services {
            if let Some(exchange) = Exchange::begun(service) {
                self.give(service.clone(), &exchange).await?;
            }
        }
        for Loser { service, lost } in losers(services) {
            let name = format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any());
            let things: Vec<String> =
                lost.iter().map(|lost| format!("{} belongs to {}", lost.thing, lost.of)).collect();
            trishanku_stdio::eprintln!("{name} gets new allocations: {}", things.join(", "));
            let Some((without, exchange)) = Exchange::begin(service, &lost) else {
                trishanku_stdio::eprintln!("{name} cannot get new allocations: its fields are not those of a Service");
                continue;
            };
            let without = self.replace(&without).await?;
            let event = Event {
                type_: EventType::Warning,
                reason: "AllocatedTwice".to_owned(),
                note: Some(format!(
                    "{}: another branch assigned it, too, so new ones are allocated",
                    things.join(", ")
                )),
                action: "Reallocate".to_owned(),
                secondary: None,
            };
            self.give(without, &exchange).await?;
            // The event is best effort: the exchange is done.
            if let Err(error) = self.recorder.publish(&event, &service.object_ref(&())).await {
                trishanku_stdio::eprintln!("cannot record an event of {name}: {error}");
            }
        }
        Ok(())
    }

    /// Finishes an exchange: restores the Service, with new allocations.
    async fn give(&self, service: Service, exchange: &Exchange) -> kube::Result<()> {
        // Removing a Service's address removes its IPAddress, whichever Service owns that.
        for (address, winner) in &exchange.addresses {
            self.reserve(address, winner).await?;
        }
        if let Some(whole) = exchange.finish(service) {
            self.replace(&whole).await?;
        }
        Ok(())
    }

    /// Creates the `IPAddress` of the owner, unless it exists.
    async fn reserve(&self, address: &str, winner: &str) -> kube::Result<()> {
        let Some((namespace, name)) = winner.split_once('/') else { return Ok(()) };
        let family = if address.contains(':') { "IPv6" } else { "IPv4" };
        let label = |name: &str, value: &str| (format!("ipaddress.kubernetes.io/{name}"), value.to_owned());
        let reserved = IPAddress {
            metadata: ObjectMeta {
                name: Some(address.to_owned()),
                labels: Some([label("ip-family", family), label("managed-by", "ipallocator.k8s.io")].into()),
                ..ObjectMeta::default()
            },
            spec: IPAddressSpec {
                parent_ref: ParentReference {
                    group: None,
                    resource: "services".to_owned(),
                    namespace: Some(namespace.to_owned()),
                    name: name.to_owned(),
                },
            },
        };
        let addresses: Api<IPAddress> = Api::all(self.client.clone());
        match addresses.create(&PostParams::default(), &reserved).await {
            Err(error) if is_conflict(&error) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Replaces the Service; fails if it has changed since it was read.
    async fn replace(&self, service: &Service) -> kube::Result<Service> {
        let services: Api<Service> =
            Api::namespaced(self.client.clone(), &service.namespace().unwrap_or_else(|| "default".to_owned()));
        services.replace(&service.name_any(), &PostParams::default(), service).await
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}
