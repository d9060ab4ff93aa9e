//! The command line.

use clap::{Parser, Subcommand};
use trishanku_framework::serve::Address;
use trishanku_framework::telemetry;
use trishanku_githubrepo::{Host, Servers};
use trishanku_heaven_plan::own_namespace::OwnNamespace;
use trishanku_heaven_plan::plan::Images;

/// Sets up heavens (controllers with their own kube-apiserver and branch), the merges between branches, and repositories
/// on GitHub.
///
/// OpenTelemetry's variables, such as `OTEL_EXPORTER_OTLP_ENDPOINT`, configure traces.
#[derive(Debug, Parser)]
#[command(name = "manager", version, max_term_width = 110, args_conflicts_with_subcommands = true)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags of their own, not states")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Metrics bind address; 0 disables
    #[arg(long, env = "METRICS_BIND_ADDRESS", default_value = ":8080", value_name = "ADDRESS")]
    pub(crate) metrics_bind_address: Address,
    /// Serve /metrics over TLS, and only to clients that may `get` the path /metrics
    #[arg(long, env = "METRICS_SECURE", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    pub(crate) metrics_secure: bool,
    /// Folder with its tls.crt and tls.key [default: a self-signed certificate]
    #[arg(long, env = "METRICS_CERT_PATH", value_name = "FOLDER")]
    pub(crate) metrics_cert_path: Option<std::path::PathBuf>,
    /// Bind address of /livez and /readyz; 0 disables
    #[arg(long, env = "HEALTH_PROBE_BIND_ADDRESS", default_value = ":8081", value_name = "ADDRESS")]
    pub(crate) health_probe_bind_address: Address,
    /// Bind address of /debug/log, on loopback; 0 disables
    #[arg(long, env = "DEBUG_BIND_ADDRESS", default_value = "0", value_name = "ADDRESS")]
    pub(crate) debug_bind_address: Address,
    /// Format of log lines on standard error: human-readable text, or a JSON object for each line
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    log_format: LogFormat,
    /// Log filter: a level, or levels of single modules, such as `info,trishanku_heaven=debug` [default: `RUST_LOG`, or else
    /// info]
    #[arg(long, env = "LOG_LEVEL", value_name = "FILTER")]
    log_level: Option<String>,
    /// Work only while holding a lease, for several replicas
    #[arg(long, env = "LEADER_ELECT", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    pub(crate) leader_elect: bool,
    /// Namespace of the lease
    #[arg(long, env = "POD_NAMESPACE", default_value = "default", value_name = "NAMESPACE")]
    pub(crate) leader_election_namespace: String,
    /// Namespaces to watch, separated by commas [default: all]
    #[arg(long, env = "NAMESPACES", value_delimiter = ',', value_name = "NAMESPACES")]
    pub(crate) namespaces: Vec<String>,
    /// Set up heavens and merges in the manager's own namespace, too. Their authors can then run containers with the
    /// manager's service account
    #[arg(long, env = "ALLOW_OWN_NAMESPACE", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    allow_own_namespace: bool,
    /// The manager's own namespace, if it runs in a pod
    #[arg(long, env = "POD_NAMESPACE", hide = true)]
    pub(crate) pod_namespace: Option<String>,
    /// Add heavens to the pods of namespaces with the label controllers.trishanku.org/inject
    #[arg(long, env = "INJECT_PODS", conflicts_with = "namespaces", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    pub(crate) inject_pods: bool,
    /// Bind address of the webhook of --inject-pods
    #[arg(long, env = "WEBHOOK_BIND_ADDRESS", default_value = ":9443", value_name = "ADDRESS")]
    pub(crate) webhook_bind_address: Address,
    /// Name of the webhook's Service, in the manager's own namespace
    #[arg(long, env = "WEBHOOK_SERVICE", default_value = "trishanku-webhooks", value_name = "NAME")]
    pub(crate) webhook_service: String,
    /// Hosts besides api.github.com whose APIs may receive repository tokens, separated by commas, such as github.example.org;
    /// without a port, all ports are allowed
    #[arg(long, env = "GITHUB_API_HOSTS", value_delimiter = ',', value_name = "HOSTS")]
    github_api_hosts: Vec<Host>,
    /// Send tokens without TLS to other hosts than loopback, too
    #[arg(long, env = "GITHUB_ALLOW_HTTP", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    github_allow_http: bool,
    /// The etcd image where a manifest names none
    #[arg(long, env = "DEFAULT_ETCD_IMAGE", default_value_t = Images::default().etcd, value_name = "IMAGE")]
    default_etcd_image: String,
    /// The git image, for user scripts, where a manifest names none
    #[arg(long, env = "DEFAULT_GIT_IMAGE", default_value_t = Images::default().git, value_name = "IMAGE")]
    default_git_image: String,
    /// The gitcd image where a manifest names none
    #[arg(long, env = "DEFAULT_GITCD_IMAGE", default_value_t = Images::default().gitcd, value_name = "IMAGE")]
    default_gitcd_image: String,
    /// The kube-apiserver image where a manifest names none
    #[arg(long, env = "DEFAULT_APISERVER_IMAGE", default_value_t = Images::default().apiserver, value_name = "IMAGE")]
    default_apiserver_image: String,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// Other commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the CRDs, for kubectl apply
    Crds,
}

impl Args {
    /// The settings of logs and traces; `name` is the service in traces.
    pub(crate) fn telemetry(&self, name: &str) -> telemetry::Settings {
        let format = match self.log_format {
            LogFormat::Text => telemetry::Format::Human,
            LogFormat::Json => telemetry::Format::Json,
        };
        let settings = telemetry::Settings::new(name).format(format);
        // An empty variable is a variable that is not set, as for RUST_LOG.
        match self.log_level.as_deref().filter(|filter| !filter.trim().is_empty()) {
            Some(filter) => settings.log_filter(filter),
            None => settings,
        }
    }

    pub(crate) fn servers(&self) -> Servers {
        Servers { named: self.github_api_hosts.clone(), in_the_clear: self.github_allow_http }
    }

    /// The namespace in which heavens and merges are refused.
    pub(crate) fn own_namespace(&self) -> OwnNamespace {
        let own = self.pod_namespace.as_ref().filter(|_| !self.allow_own_namespace);
        own.map_or_else(OwnNamespace::default, OwnNamespace::refused)
    }

    pub(crate) fn images(&self) -> Images {
        Images {
            etcd: self.default_etcd_image.clone(),
            git: self.default_git_image.clone(),
            gitcd: self.default_gitcd_image.clone(),
            apiserver: self.default_apiserver_image.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_managers_namespace_is_refused_unless_its_operator_allows_it() {
        let of = |words: &[&str]| Args::parse_from([&["manager"], words].concat()).own_namespace();
        let own = "--pod-namespace=system";
        assert_eq!(of(&[own]), OwnNamespace::refused("system"));
        assert_eq!(of(&[own, "--allow-own-namespace"]), OwnNamespace::default());
        assert_eq!(of(&["--namespaces=system"]), OwnNamespace::default());
    }
}
