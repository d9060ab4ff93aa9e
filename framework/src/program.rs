//! The main function of a controller.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use futures::future::LocalBoxFuture;
use kube::{Config, CustomResourceExt};

use crate::cache::Scope;
use crate::crd::Definitions;
use crate::error::chain;
use crate::serve::{Address, Addresses, Server};
#[cfg(feature = "webhook")]
use crate::webhook::{WebhookEndpoint, Webhooks};
use crate::{Controller, Manager, Reconciler, lease, stop_signal, telemetry};

/// Any error.
type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Adds something to the manager.
type Step = Box<dyn FnOnce(Manager) -> LocalBoxFuture<'static, Result<Manager, Failed>>>;

/// Returns a variable of the environment.
fn variable(name: &str, otherwise: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.to_owned())
}

fn address(name: &str, otherwise: &str) -> Result<Address, String> {
    variable(name, otherwise).parse().map_err(|error| format!("{name}: {error}"))
}

/// Returns the namespace of the program.
fn namespace() -> String {
    variable("POD_NAMESPACE", "default")
}

/// A program with controllers: its name is that of the [lease](crate::lease) and of the [telemetry](crate::telemetry).
///
/// Without arguments it runs the controllers, until SIGTERM or Ctrl-C. `crd` prints its definitions, for `kubectl apply`.
///
/// | variable | default | content |
/// |---|---|---|
/// | `PROBES` | `:8081` | address of the [probes](crate::serve) |
/// | `METRICS` | `:8080` | address of the metrics |
/// | `METRICS_SECURE` | `false` | `true` serves them over TLS, to [authorized clients](Server::secure_metrics) |
/// | `METRICS_CERT_PATH` | self-signed | folder with the `tls.crt` and `tls.key` for that |
/// | `WEBHOOKS` | `:9443` | address of the [webhooks](Self::webhooks), if the program has any; `0` serves and registers none |
/// | `WEBHOOKS_HOST` | | host where the apiserver finds that address, for a program outside of the cluster; otherwise, the Service is used |
/// | `POD_NAMESPACE` | `default` | namespace of the lease, and of the webhooks' Service and Secret |
/// | `WATCH_NAMESPACES` | all | the namespaces to watch, separated by commas |
/// | `RUST_LOG`, `OTEL_…` | | those of [`telemetry::Settings`] |
///
/// The cluster is that of the kubeconfig, or that of the pod.
///
/// ```no_run
/// use std::process::ExitCode;
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use trishanku_framework::{Action, Context, Controller, Program, Reconciler};
///
/// struct Tank;
///
/// impl Reconciler for Tank {
///     type Object = ConfigMap;
///     type Error = kube::Error;
///
///     async fn reconcile(&self, tank: Arc<ConfigMap>, context: Context) -> Result<Action, kube::Error> {
///         println!("{} has {} entries", context.key, tank.data.as_ref().map_or(0, |data| data.len()));
///         Ok(Action::Change)
///     }
/// }
///
/// #[tokio::main]
/// async fn main() -> ExitCode {
///     let tanks = Controller::new("tank", Tank).selecting("kind=tank");
///     Program::new("tank").controller(tanks).run().await
/// }
/// ```
pub struct Program {
    name: String,
    definitions: Definitions,
    steps: Vec<Step>,
    #[cfg(feature = "webhook")]
    has_webhooks: bool,
}

impl Program {
    /// Creates a program. The name is part of a lease's name, and must never change.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            definitions: Definitions::default(),
            steps: Vec::new(),
            #[cfg(feature = "webhook")]
            has_webhooks: false,
        }
    }

    /// Adds the definition of a kind, which `crd` prints. Running the program does not apply it.
    #[must_use]
    pub fn crd<K: CustomResourceExt>(mut self) -> Self {
        self.definitions = self.definitions.and::<K>();
        self
    }

    /// Sets the definitions of its kinds, instead of those that were [added](Self::crd): for several versions of a kind.
    #[must_use]
    pub fn definitions(mut self, definitions: Definitions) -> Self {
        self.definitions = definitions;
        self
    }

    /// Adds a controller.
    #[must_use]
    pub fn controller<R: Reconciler>(self, controller: Controller<R>) -> Self {
        self.step(Box::new(|manager| Box::pin(async { Ok(manager.controller(controller)) })))
    }

    /// Adds webhooks, which the program serves and [registers](crate::webhook), at the address in `WEBHOOKS`. `add` adds the hooks.
    /// The apiserver finds them by the Service `service` in the namespace of the program, or at `WEBHOOKS_HOST`.
    ///
    /// ```no_run
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use trishanku_framework::Program;
    /// use trishanku_framework::webhook::{Admission, Denied, Hook};
    ///
    /// async fn check(admission: Admission<ConfigMap>) -> Result<(), Denied> {
    ///     let has_level = admission.object.data.is_some_and(|data| data.contains_key("level"));
    ///     if has_level { Ok(()) } else { Err(Denied::invalid("data.level is missing")) }
    /// }
    ///
    /// # async fn example() -> std::process::ExitCode {
    /// Program::new("tank")
    ///     .webhooks("tank-webhooks", |webhooks| webhooks.validating(Hook::named("maps.plant.example.org"), check))
    ///     .run()
    ///     .await
    /// # }
    /// ```
    #[cfg(feature = "webhook")]
    #[must_use]
    pub fn webhooks(mut self, service: impl Into<String>, add: impl FnOnce(Webhooks) -> Webhooks + 'static) -> Self {
        let (name, service) = (self.name.clone(), service.into());
        self.has_webhooks = true;
        self.step(Box::new(|manager| {
            Box::pin(async {
                Ok(match bind_webhooks(name, service).await? {
                    Some(webhooks) => manager.webhooks(add(webhooks)),
                    None => manager,
                })
            })
        }))
    }

    /// Changes the manager in any other way, in the order of the calls: adds controllers that need its caches, runnables, clusters.
    /// `change` is not called for `crd` and `--help`. If it fails, the program ends with that error.
    ///
    /// ```no_run
    /// # async fn example() -> std::process::ExitCode {
    /// use trishanku_framework::Program;
    ///
    /// Program::new("tank")
    ///     .set_up(async |manager| {
    ///         let levels = std::fs::read_to_string("levels.txt")?;
    ///         Ok(manager.runnable("levels", move |_, _| std::future::ready(println!("{levels}"))))
    ///     })
    ///     .run()
    ///     .await
    /// # }
    /// ```
    #[must_use]
    pub fn set_up(self, change: impl AsyncFnOnce(Manager) -> Result<Manager, Failed> + 'static) -> Self {
        self.step(Box::new(|manager| Box::pin(change(manager))))
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Runs the program. Returns 0 after a stop, 1 after an error, which is on standard error then, and 2 for arguments that it does
    /// not have.
    pub async fn run(self) -> ExitCode {
        let arguments: Vec<_> = std::env::args_os().skip(1).collect();
        let (name, usage) = (self.name.clone(), self.usage());
        let outcome = match arguments.as_slice() {
            [] => self.serve().await,
            [one] if one == "crd" => self.definitions.print().map_err(Into::into),
            [one] if one == "help" || one == "--help" || one == "-h" => {
                println!("{usage}");
                Ok(())
            }
            unknown => {
                let unknown = unknown.join(&OsString::from(" "));
                eprintln!("{name}: unknown arguments: {}\n{usage}", unknown.display());
                return ExitCode::from(2);
            }
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{name}: {}", chain(&*error));
                ExitCode::FAILURE
            }
        }
    }

    async fn serve(self) -> Result<(), Failed> {
        let (probes, metrics) = (address("PROBES", ":8081")?, address("METRICS", ":8080")?);
        let telemetry = telemetry::Settings::new(&*self.name).init()?;
        let mut server = Server::bind(&Addresses { probes, metrics, ..Addresses::default() }).await?;
        if variable("METRICS_SECURE", "false").parse().map_err(|_| "METRICS_SECURE: use true or false")? {
            server = server.secure_metrics(std::env::var_os("METRICS_CERT_PATH").as_deref().map(Path::new))?;
        }
        let namespaces = variable("WATCH_NAMESPACES", "");
        let names = namespaces.split(',').map(str::trim).filter(|name| !name.is_empty());
        let scope = match Scope::namespaces(names) {
            Scope::Namespaces(names) if names.is_empty() => Scope::All,
            scope => scope,
        };
        let manager = Manager::with_scope(Config::infer().await?, scope)
            .telemetry(&telemetry)
            .serve(server)
            .leader_election(lease::Settings::new(namespace(), &*self.name));
        let outcome = work(manager, self.steps).await;
        telemetry.end().await;
        outcome
    }

    fn usage(&self) -> String {
        #[cfg(feature = "webhook")]
        let webhooks = if self.has_webhooks { "WEBHOOKS, WEBHOOKS_HOST, " } else { "" };
        #[cfg(not(feature = "webhook"))]
        let webhooks = "";
        format!(
            "usage: {} [crd]\n\n  without arguments: run the controllers\n  crd: print the CustomResourceDefinitions\n\nvariables: \
             PROBES, METRICS, METRICS_SECURE, METRICS_CERT_PATH, {webhooks}POD_NAMESPACE, WATCH_NAMESPACES, RUST_LOG, KUBECONFIG",
            self.name
        )
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Runs the manager after these steps.
async fn work(mut manager: Manager, steps: Vec<Step>) -> Result<(), Failed> {
    for step in steps {
        manager = step(manager).await?;
    }
    Ok(manager.run(stop_signal()?).await?)
}

/// Binds the address of the webhooks; `None` if they are disabled.
#[cfg(feature = "webhook")]
async fn bind_webhooks(name: String, service: String) -> Result<Option<Webhooks>, Failed> {
    let address = address("WEBHOOKS", ":9443")?;
    if address == Address::Off {
        tracing::warn!("webhooks are disabled; the apiserver still asks those that were registered before");
        return Ok(None);
    }
    let webhooks = Webhooks::bind(name, &address, WebhookEndpoint::service(namespace(), service)).await?;
    let host = variable("WEBHOOKS_HOST", "");
    let port = webhooks.address().map(|address| address.port());
    Ok(Some(match port.filter(|_| !host.is_empty()) {
        // The port may be any free one.
        Some(port) => webhooks.endpoint(WebhookEndpoint::host(namespace(), host, port)),
        None => webhooks,
    }))
}
