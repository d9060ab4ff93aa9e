//! The main function of a controller.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use kube::Config;

use crate::cache::Scope;
use crate::crd::Definitions;
use crate::error::chain;
use crate::serve::{Address, Addresses, Server};
use crate::{Manager, lease, stop_signal, telemetry};

/// Any error.
type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Returns a variable of the environment.
fn variable(name: &str, otherwise: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.to_owned())
}

fn address(name: &str, otherwise: &str) -> Result<Address, String> {
    variable(name, otherwise).parse().map_err(|error| format!("{name}: {error}"))
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
/// | `POD_NAMESPACE` | `default` | namespace of the lease |
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
///     Program::new("tank").run(async |manager| Ok(manager.controller(tanks))).await
/// }
/// ```
#[derive(Debug)]
pub struct Program {
    name: String,
    definitions: Definitions,
}

impl Program {
    /// Creates a program. The name is part of a lease's name, and must never change.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), definitions: Definitions::default() }
    }

    /// Sets the definitions of its kinds.
    #[must_use]
    pub fn definitions(mut self, definitions: Definitions) -> Self {
        self.definitions = definitions;
        self
    }

    /// Runs the program with the controllers that `add` adds to its manager, which it does not call for `crd` and `--help`. Returns 0 after a stop, 1 after an error, which is
    /// on standard error then, and 2 for arguments that it does not have.
    pub async fn run(self, add: impl AsyncFnOnce(Manager) -> Result<Manager, Failed>) -> ExitCode {
        let arguments: Vec<_> = std::env::args_os().skip(1).collect();
        let outcome = match arguments.as_slice() {
            [] => self.serve(add).await,
            [one] if one == "crd" => self.definitions.print().map_err(Into::into),
            [one] if one == "help" || one == "--help" || one == "-h" => {
                println!("{}", self.usage());
                Ok(())
            }
            unknown => {
                let unknown = unknown.join(&OsString::from(" "));
                eprintln!("{}: unknown arguments: {}\n{}", self.name, unknown.display(), self.usage());
                return ExitCode::from(2);
            }
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{}: {}", self.name, chain(&*error));
                ExitCode::FAILURE
            }
        }
    }

    async fn serve(&self, add: impl AsyncFnOnce(Manager) -> Result<Manager, Failed>) -> Result<(), Failed> {
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
            .leader_election(lease::Settings::new(variable("POD_NAMESPACE", "default"), &*self.name));
        let outcome = match add(manager).await {
            Ok(manager) => manager.run(stop_signal()?).await.map_err(Into::into),
            Err(error) => Err(error),
        };
        telemetry.end().await;
        outcome
    }

    fn usage(&self) -> String {
        format!(
            "usage: {} [crd]\n\n  without arguments: run the controllers\n  crd: print the CustomResourceDefinitions\n\nvariables: \
             PROBES, METRICS, METRICS_SECURE, METRICS_CERT_PATH, POD_NAMESPACE, WATCH_NAMESPACES, RUST_LOG, KUBECONFIG",
            self.name
        )
    }
}
