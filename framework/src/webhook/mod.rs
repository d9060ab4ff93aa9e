//! Admission and conversion webhooks, with their certificates and their registration.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::{ConfigMap, Pod};
//! use trishanku_framework::Manager;
//! use trishanku_framework::webhook::{Admission, Denied, Hook, WebhookEndpoint, Webhooks};
//!
//! # async fn example(manager: Manager) -> Result<Manager, Box<dyn std::error::Error>> {
//! let webhooks = Webhooks::bind("tank", &":9443".parse()?, WebhookEndpoint::service("plant", "tank-webhooks"))
//!     .await?
//!     .validating(Hook::named("maps.plant.example.org"), |admission: Admission<ConfigMap>| async move {
//!         match admission.object.data.as_ref().is_some_and(|data| data.contains_key("level")) {
//!             true => Ok(()),
//!             false => Err(Denied::invalid("data.level is missing")),
//!         }
//!     })
//!     .mutating(Hook::named("pods.plant.example.org").ignoring_failures(), |mut admission: Admission<Pod>| async move {
//!         admission.object.metadata.labels.get_or_insert_default().insert("plant".to_owned(), "tank".to_owned());
//!         Ok(admission.object)
//!     });
//! Ok(manager.webhooks(webhooks))
//! # }
//! ```
//!
//! **Registration.** While the manager holds its lease, it applies a `ValidatingWebhookConfiguration` and a
//! `MutatingWebhookConfiguration` with the name `NAME.NAMESPACE`, and the conversion of its CRDs, each with the authorities to trust: at
//! the start, when these change, and every five minutes. It needs the permission to `create` and `patch` configurations, and to `patch`
//! CRDs. The Service is yours: it leads to the pods at the bound port. Delete the configurations when you uninstall the program.
//!
//! **Certificates.** They are in the Secret `NAME-webhooks` in the namespace of the Service: replicas share it. A certificate is
//! renewed after 60 of its 90 days, and its authority after five of its ten years, without a refused request: a new authority is
//! trusted before it issues, and the former one until nothing of it is in use. (That of a conversion is part of its CRD, and
//! kube-apiserver interrupts requests for a CRD's objects for a moment whenever it changes, whatever the change: every five years.) If the Secret exists and is not ours, such as one of
//! cert-manager, its `tls.crt`, `tls.key` and `ca.crt` are used as they are, also when they change. It needs the permission to `list`,
//! `watch`, `create` and `update` Secrets there. Who can read that Secret can pretend to be the program.
//!
//! **Outages.** While no replica answers, the apiserver refuses what a hook is asked about, or lets it pass if the hook is
//! [`ignoring_failures`](Hook::ignoring_failures). All replicas answer, also those without the lease. Do not ask about the objects that
//! your own pods need to start (or leave out their namespace, with [`Hook::except_namespaces`]): after an outage they could not start.
//!
//! **Memory.** The bodies of all requests together have at most 64 MiB ([`Webhooks::body_budget_bytes`]), counted as they arrive, and
//! each connection reads up to 32 KiB ahead. Bytes beyond the budget wait for two seconds; then the request is refused with 503 and
//! `Retry-After`. A client has ten seconds to send a body. A pod that can connect can fill the budget for that long if it sends that
//! much, so that reviews fail: admit only apiservers by a `NetworkPolicy` if pods are not trusted.
//!
//! **Dry runs.** Hooks are registered as free of side effects, and are asked in dry runs, too ([`Admission::dry_run`]).

mod admission;
mod body;
mod budget;
mod certificates;
mod configuration;
mod conversion;
mod secret;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use kube::{Client, CustomResourceExt};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use self::admission::{Admission, Denied, FieldProblem};
pub use self::certificates::CertificateLifetimes;
pub use self::configuration::{Hook, WebhookEndpoint};
pub use self::conversion::Conversion;
pub use kube::core::admission::Operation;

use self::budget::{BodyBudget, RouteLimit};
use self::configuration::{Registered, Registration};
use self::secret::Trust;
use self::tls::Served;
use crate::StaticKind;
use crate::controller::Term;
use crate::health::Health;
use crate::serve::{Address, BindError, Limits, TlsPort};

/// The largest review of an admission: two objects of the largest size that etcd stores, and what JSON adds.
const MOST_OF_ADMISSION: usize = 8 << 20;
/// The largest review of a conversion: the apiserver sends all objects of a list at once.
const MOST_OF_CONVERSION: usize = 128 << 20;
/// Time before the next attempt to register them; it doubles.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// Time after which they are registered again.
const REASSERT: Duration = Duration::from_mins(5);
/// How long requests in flight may take after everything else has stopped.
const GRACE: Duration = Duration::from_secs(5);
/// Limits of the port. Its clients are apiservers: each has a connection for each review that it waits for, over HTTP/1.1, and closes it
/// after 90 idle seconds. An apiserver that finds it closed instead would refuse a user's request.
const LIMITS: Limits = Limits {
    connections: 2048,
    connections_of_peer: 1024,
    handshake: Duration::from_secs(5),
    // The longest time-out of a hook is half of that.
    request: Duration::from_mins(1),
    idle: Duration::from_mins(2),
};

/// The webhooks of a program. See the [module](self).
#[derive(Debug)]
pub struct Webhooks {
    listener: TcpListener,
    registration: Registration,
    admissions: Router,
    conversions: Router,
    lifetimes: CertificateLifetimes,
    body_budget_bytes: usize,
}

impl Webhooks {
    /// Binds the port, in the runtime of the manager. `name` is part of the names of the Secret and of the configurations, and must
    /// never change; `endpoint` is where the apiserver finds the port.
    ///
    /// # Errors
    /// [`BindError`] names the address.
    pub async fn bind(
        name: impl Into<String>,
        address: &Address,
        endpoint: WebhookEndpoint,
    ) -> Result<Self, BindError> {
        let failed = |source| BindError::Listen { what: "webhooks", address: address.to_string(), source };
        let off = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "an address is needed");
        let listener = address.listen().await.and_then(|listener| listener.ok_or_else(off)).map_err(failed)?;
        let registration = Registration::new(name.into(), endpoint);
        let (admissions, conversions) = (Router::new(), Router::new());
        let (lifetimes, body_budget_bytes) = (CertificateLifetimes::default(), budget::DEFAULT);
        Ok(Self { listener, registration, admissions, conversions, lifetimes, body_budget_bytes })
    }

    /// Returns the bound address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Sets where the apiserver finds the port, if that depends on the [address](Self::address).
    #[must_use]
    pub fn endpoint(mut self, endpoint: WebhookEndpoint) -> Self {
        self.registration.endpoint = endpoint;
        self
    }

    /// Sets when certificates are renewed.
    #[must_use]
    pub fn lifetimes(mut self, lifetimes: CertificateLifetimes) -> Self {
        self.lifetimes = lifetimes.sound();
        self
    }

    /// Sets how many bytes the bodies of all requests may have together, from their receipt to the response; by default 64 MiB.
    ///
    /// Each connection can send a body of up to 8 MiB, or 128 MiB for a conversion, and its decoded objects need a multiple of that.
    /// Bytes beyond the budget wait for two seconds; then the request is answered with 503 and `Retry-After`, and kube-apiserver
    /// repeats it within the timeout of the hook. A body that is larger than the budget needs all of it, so the limit of the memory is
    /// the larger one of the two.
    #[must_use]
    pub fn body_budget_bytes(mut self, bytes: usize) -> Self {
        self.body_budget_bytes = bytes;
        self
    }

    /// Asks `check` whether an object may be written or deleted. An object that does not match its type is no answer: the hook's
    /// policy for failures decides.
    ///
    /// # Panics
    /// If another hook of this sort has the name.
    #[must_use]
    pub fn validating<K, F, Fut>(mut self, hook: Hook, check: F) -> Self
    where
        K: StaticKind,
        F: Fn(Admission<K>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Denied>> + Send,
    {
        let path = format!("/validate/{}", hook.name);
        self.admissions = self.admissions.merge(admission::validating(&path, check));
        self.registration.validating.push(Registered::of::<K>(hook, path));
        self
    }

    /// Asks `change` what an object is to be before it is written. Fields that its type does not know stay as they are, also of items of a
    /// list that change their places, if they are equal before and after or have a `name`.
    ///
    /// # Panics
    /// If another hook of this sort has the name.
    #[must_use]
    pub fn mutating<K, F, Fut>(mut self, hook: Hook, change: F) -> Self
    where
        K: StaticKind,
        F: Fn(Admission<K>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<K, Denied>> + Send,
    {
        let path = format!("/mutate/{}", hook.name);
        self.admissions = self.admissions.merge(admission::mutating(&path, change));
        self.registration.mutating.push(Registered::of::<K>(hook, path));
        self
    }

    /// Converts objects of `K`'s CRD between its versions. The CRD must exist, and is changed to ask this program; the versions
    /// themselves are those of its [`Definitions`](crate::crd::Definitions). Labels and annotations stay unless the result has others.
    ///
    /// # Panics
    /// If the CRD has a conversion already.
    #[must_use]
    pub fn converting<K: CustomResourceExt>(
        mut self,
        convert: impl Fn(Conversion) -> Result<Value, String> + Clone + Send + Sync + 'static,
    ) -> Self {
        let path = format!("/convert/{}", K::crd_name());
        self.conversions = self.conversions.merge(conversion::converting(&path, convert));
        self.registration.converting.push((K::crd_name().to_owned(), path));
        self
    }

    /// The name of the task that registers them.
    pub(crate) fn task(&self) -> String {
        self.registration.name()
    }

    /// Splits it into what every replica serves, and what the leader registers.
    pub(crate) fn start(self, client: &Client, health: &Health) -> (Serving, Registrar) {
        let ((trust, trusted), (registered, is_registered)) = (watch::channel(None), watch::channel(None));
        let served = Served::default();
        let registration = Arc::new(self.registration);
        let awaited = health.wait_for(registration.name());
        let mut serving = Serving { tasks: JoinSet::new(), stop: watch::channel(false).0 };
        let keeper =
            secret::Keeper::new(client.clone(), &registration, self.lifetimes, served.clone(), trust, is_registered);
        serving.tasks.spawn(async move {
            keeper.keep(awaited).await;
        });
        let budget = BodyBudget::new(self.body_budget_bytes);
        // A layer covers the routes that exist. axum's own limit is smaller.
        let limited = |routes: Router, largest| {
            let limit = RouteLimit { budget: budget.clone(), largest };
            routes.layer(DefaultBodyLimit::disable()).layer(from_fn_with_state(limit, budget::receive))
        };
        let admissions = limited(self.admissions, MOST_OF_ADMISSION);
        let pages = admissions.merge(limited(self.conversions, MOST_OF_CONVERSION));
        let config = Arc::new(move || served.config());
        let port = TlsPort { listener: self.listener, what: "webhooks", config, limits: LIMITS };
        serving.tasks.spawn(port.serve(pages, serving.stop.subscribe()));
        (serving, Registrar { registration, trusted, registered })
    }
}

/// What every replica serves, until this is dropped.
pub(crate) struct Serving {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Serving {
    /// Answers requests in flight, and accepts no more.
    pub(crate) async fn end(mut self) {
        let _nobody_serves = self.stop.send(true);
        // The other task keeps the certificates, and does not end.
        let _in_time = tokio::time::timeout(GRACE, self.tasks.join_next()).await;
    }
}

/// What the leader registers.
#[derive(Clone)]
pub(crate) struct Registrar {
    registration: Arc<Registration>,
    trusted: watch::Receiver<Option<Trust>>,
    registered: watch::Sender<Option<Trust>>,
}

impl Registrar {
    /// Registers the hooks during a term: again whenever other authorities are to be trusted, and every five minutes, in case the
    /// configurations were changed or deleted.
    pub(crate) async fn register(mut self, client: Client, term: Term) {
        let registered = self.registered.clone();
        tokio::select! {
            () = term.ended() => {}
            () = self.keep_registered(&client) => {}
        }
        // Another replica knows from now on.
        registered.send_replace(None);
    }

    async fn keep_registered(&mut self, client: &Client) {
        let mut pause = PAUSE;
        loop {
            let trust = self.trusted.wait_for(Option::is_some).await.ok().and_then(|trust| trust.clone());
            // The keeper ends with the manager.
            let Some(trust) = trust else { return std::future::pending().await };
            let wait = if self.registration.apply(client, &trust).await {
                self.registered.send_replace(Some(trust));
                pause = PAUSE;
                REASSERT
            } else {
                pause = (pause * 2).min(LONGEST_PAUSE);
                pause
            };
            tokio::select! {
                Ok(()) = self.trusted.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}
