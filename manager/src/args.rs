//! The command line.

use clap::{Parser, Subcommand};
use trishanku_framework::serve::Address;
use trishanku_github::{Host, Servers};
use trishanku_sidecars::plan::Images;

/// Sets up heavens: controllers with a kube-apiserver on a branch of their own, the merges between branches, and
/// repositories on GitHub.
///
/// Traces are sent where OpenTelemetry's variables say, such as `OTEL_EXPORTER_OTLP_ENDPOINT`; `RUST_LOG` says what is logged.
#[derive(Debug, Parser)]
#[command(name = "manager", version, max_term_width = 110, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Where /metrics is; 0 for nowhere
    #[arg(long, env = "METRICS_BIND_ADDRESS", default_value = ":8080", value_name = "ADDRESS")]
    pub(crate) metrics_bind_address: Address,
    /// Serve /metrics over TLS, and only to those who have the right to get the path /metrics
    #[arg(long, env = "METRICS_SECURE", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    pub(crate) metrics_secure: bool,
    /// The folder with tls.crt and tls.key for that [default: a certificate of its own]
    #[arg(long, env = "METRICS_CERT_PATH", value_name = "FOLDER")]
    pub(crate) metrics_cert_path: Option<std::path::PathBuf>,
    /// Where /livez and /readyz are; 0 for nowhere
    #[arg(long, env = "HEALTH_PROBE_BIND_ADDRESS", default_value = ":8081", value_name = "ADDRESS")]
    pub(crate) health_probe_bind_address: Address,
    /// Where /debug/log is, on loopback; 0 for nowhere
    #[arg(long, env = "DEBUG_BIND_ADDRESS", default_value = "0", value_name = "ADDRESS")]
    pub(crate) debug_bind_address: Address,
    /// Work only while holding a lease, so that several replicas can run
    #[arg(long, env = "LEADER_ELECT", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    pub(crate) leader_elect: bool,
    /// The namespace of the lease
    #[arg(long, env = "POD_NAMESPACE", default_value = "default", value_name = "NAMESPACE")]
    pub(crate) leader_election_namespace: String,
    /// Namespaces to look at, separated by commas [default: all]
    #[arg(long, env = "NAMESPACES", value_delimiter = ',', value_name = "NAMESPACES")]
    pub(crate) namespaces: Vec<String>,
    /// Hosts to whose APIs tokens of repositories may be sent beside api.github.com, separated by commas, such as
    /// github.example.org; without a port every port of it
    #[arg(long, env = "GITHUB_API_HOSTS", value_delimiter = ',', value_name = "HOSTS")]
    github_api_hosts: Vec<Host>,
    /// Send these tokens also where there is no TLS; otherwise that is done on loopback only
    #[arg(long, env = "GITHUB_ALLOW_HTTP", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    github_allow_http: bool,
    /// The image of etcd where a manifest names none
    #[arg(long, env = "DEFAULT_ETCD_IMAGE", default_value_t = Images::default().etcd, value_name = "IMAGE")]
    default_etcd_image: String,
    /// The image with git, for scripts of users, where a manifest names none
    #[arg(long, env = "DEFAULT_GIT_IMAGE", default_value_t = Images::default().git, value_name = "IMAGE")]
    default_git_image: String,
    /// The image of gitcd where a manifest names none
    #[arg(long, env = "DEFAULT_GITCD_IMAGE", default_value_t = Images::default().gitcd, value_name = "IMAGE")]
    default_gitcd_image: String,
    /// The image of kube-apiserver where a manifest names none
    #[arg(long, env = "DEFAULT_APISERVER_IMAGE", default_value_t = Images::default().apiserver, value_name = "IMAGE")]
    default_apiserver_image: String,
}

/// What else it can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the definitions of the kinds, for kubectl apply
    Crds,
}

impl Args {
    pub(crate) fn servers(&self) -> Servers {
        Servers { named: self.github_api_hosts.clone(), in_the_clear: self.github_allow_http }
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
