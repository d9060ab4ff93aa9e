//! `gitcd host`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use gitcd_core::supervisor::Supervisor;
use gitcd_host::server::Server;
use gitcd_host::{Access, Config, Limits};
use gitcd_net::listener::{Bound, Ports};
use gitcd_net::tls;
use gitcd_server::config::{Listen, listen_urls};
use gitcd_sync::owner::Served;

use super::boolean;
use super::limits::HostLimits;
use super::stop::Stop;

const EXAMPLES: &str = "Examples:
  gitcd host --root=repositories --create-on-push
  gitcd host --root=repositories --listen-urls=https://0.0.0.0:8443 --tls-cert=host.crt --tls-key=host.key \\
    --tokens=tokens.yaml";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The folder with the bare repositories; NAME.git in it is served as /NAME.git, and so on in subfolders
    #[arg(long, env = "GITCD_ROOT", value_name = "DIR")]
    root: PathBuf,
    /// URLs to listen on, separated by ';'
    #[arg(long, env = "GITCD_LISTEN_URLS", default_value = "http://127.0.0.1:2480", value_name = "URLS")]
    listen_urls: String,
    /// YAML file with users, their tokens and rights; reloaded when it changes
    #[arg(long, env = "GITCD_TOKENS", value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Access without a token or certificate [default: none; write if there is no --tokens and only this machine can
    /// connect]
    #[arg(long, env = "GITCD_ANONYMOUS", value_enum, value_name = "ACCESS")]
    anonymous: Option<Anonymous>,
    /// Create a repository on the first push by a user with write access
    #[arg(long, env = "GITCD_CREATE_ON_PUSH", value_parser = boolean)]
    create_on_push: bool,
    #[command(flatten)]
    limits: HostLimits,
    /// Certificate for https listeners (PEM file)
    #[arg(long, env = "GITCD_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Its key (PEM file)
    #[arg(long, env = "GITCD_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Require client certificates from the CAs in this PEM file; their common names are users in --tokens
    #[arg(long, env = "GITCD_TLS_TRUSTED_CA_CERTS", value_name = "FILE")]
    tls_trusted_ca_certs: Option<PathBuf>,
}

/// Access of anonymous clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Anonymous {
    /// Nothing
    None,
    /// Clone, fetch and follow references
    Read,
    /// Push too
    Write,
    /// Push gitcd's metadata (refs/gitcd/) too
    Own,
}

impl Anonymous {
    fn access(self) -> Option<Access> {
        match self {
            Self::None => None,
            Self::Read => Some(Access::Read),
            Self::Write => Some(Access::Write),
            Self::Own => Some(Access::Own),
        }
    }
}

/// The flags for a host of both commands, whose names differ in their prefix.
struct Given<'a> {
    flag: &'static str,
    urls: &'a str,
    tokens: Option<&'a Path>,
    anonymous: Option<Anonymous>,
    cert: Option<&'a Path>,
    key: Option<&'a Path>,
    trusted_ca: Option<&'a Path>,
}

/// The ports of a host, and the access of anonymous clients.
struct Opening {
    ports: Ports,
    anonymous: Option<Access>,
}

impl Given<'_> {
    fn open(&self) -> anyhow::Result<Opening> {
        let listen = listen_urls(self.flag, self.urls)?;
        if listen.is_empty() {
            bail!("--{} has no URL", self.flag);
        }
        let anonymous = self.anonymous(&listen)?;
        Ok(Opening { ports: Ports::new(&listen, self.tls()?)?, anonymous })
    }

    fn prefix(&self) -> &'static str {
        self.flag.strip_suffix("listen-urls").unwrap_or_default()
    }

    fn tls(&self) -> anyhow::Result<Option<tls::Files>> {
        match (self.cert, self.key, self.trusted_ca) {
            (Some(cert), Some(key), trusted_ca) => {
                Ok(Some(tls::Files { cert: cert.into(), key: key.into(), trusted_ca: trusted_ca.map(Into::into) }))
            }
            (None, None, None) => Ok(None),
            _ => {
                let tls = format!("--{}tls", self.prefix());
                bail!("{tls}-cert and {tls}-key belong together, and {tls}-trusted-ca-certs needs both")
            }
        }
    }

    /// Returns the access of anonymous clients. By default they may write only if just this machine can connect.
    fn anonymous(&self, listen: &[Listen]) -> anyhow::Result<Option<Access>> {
        let prefix = self.prefix();
        let is_loopback = listen.iter().all(|url| url.address.ip().is_loopback());
        // An https listener on loopback may be exposed to other machines, such as by a tunnel.
        let is_local = is_loopback && listen.iter().all(|url| !url.tls);
        match self.anonymous {
            Some(given) => {
                let access = given.access();
                if access.is_none() && self.tokens.is_none() {
                    bail!(
                        "no user could access this host: give --{prefix}tokens, or another value than --{prefix}anonymous=none"
                    );
                }
                if access >= Some(Access::Write) && !is_local {
                    tracing::warn!("every client that can connect can push (--{prefix}anonymous)");
                }
                Ok(access)
            }
            None if self.tokens.is_some() => Ok(None),
            None if is_local => {
                tracing::info!(
                    "every user of this machine can push: neither --{prefix}tokens nor --{prefix}anonymous is set"
                );
                Ok(Some(Access::Write))
            }
            None => {
                let why = if is_loopback {
                    "; without them, all local users may push only where all URLs are http://, since https:// may be exposed to others"
                } else {
                    ""
                };
                bail!(
                    "no user could access this host: give --{prefix}tokens with users, or --{prefix}anonymous=read or write{why}"
                )
            }
        }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let given = Given {
        flag: "listen-urls",
        urls: &args.listen_urls,
        tokens: args.tokens.as_deref(),
        anonymous: args.anonymous,
        cert: args.tls_cert.as_deref(),
        key: args.tls_key.as_deref(),
        trusted_ca: args.tls_trusted_ca_certs.as_deref(),
    };
    let Opening { ports, anonymous } = given.open()?;
    let limits = args.limits.limits()?;
    let config = Config {
        tokens: args.tokens.clone(),
        anonymous,
        create_on_push: args.create_on_push,
        limits,
        ..Config::new(&args.root)
    };
    let runtime = super::runtime()?;
    let result = runtime.block_on(serve(config, &ports));
    // Everything that still runs has been asked to stop.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn serve(config: Config, ports: &Ports) -> anyhow::Result<()> {
    let stop = Stop::by_signal()?;
    let root = config.root.clone();
    let start = async { anyhow::Ok(Server::start_on(config, ports.bind().await?).await?) };
    let mut server = start.await.with_context(|| format!("cannot host {}", root.display()))?;
    for address in server.addresses() {
        tracing::info!(root = %root.display(), %address, "hosting");
    }
    tokio::select! {
        () = stop.requested() => {}
        error = server.failed() => return Err(error.into()),
    }
    tracing::info!("stopping: finishing requests");
    server.stop().await;
    tracing::info!("stopped");
    Ok(())
}

/// Flags of `gitcd serve` for a Git host beside the etcd API.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Git host")]
pub(super) struct HostFlags {
    #[arg(
        long,
        env = "GITCD_HOST_LISTEN_URLS",
        value_name = "URLS",
        help = "Serve the repository to Git clients, too: with http://127.0.0.1:2480 they clone http://127.0.0.1:2480/NAME.git. Pushes to a branch that is served here go through its store; refs/for/BRANCH accepts them at any time"
    )]
    host_listen_urls: Option<String>,
    /// YAML file with users, their tokens and rights; see `gitcd host`
    #[arg(long, env = "GITCD_HOST_TOKENS", value_name = "FILE")]
    host_tokens: Option<PathBuf>,
    /// Anonymous access to it [default: none; write if there is no --host-tokens and only this machine can connect]
    #[arg(long, env = "GITCD_HOST_ANONYMOUS", value_enum, value_name = "ACCESS")]
    host_anonymous: Option<Anonymous>,
    /// Certificate for https listeners of the Git host (PEM file)
    #[arg(long, env = "GITCD_HOST_TLS_CERT", value_name = "FILE")]
    host_tls_cert: Option<PathBuf>,
    /// Its key (PEM file)
    #[arg(long, env = "GITCD_HOST_TLS_KEY", value_name = "FILE")]
    host_tls_key: Option<PathBuf>,
    /// Require client certificates from the CAs in this PEM file
    #[arg(long, env = "GITCD_HOST_TLS_TRUSTED_CA_CERTS", value_name = "FILE")]
    host_tls_trusted_ca_certs: Option<PathBuf>,
    #[command(flatten)]
    limits: HostLimits<true>,
}

/// A host beside the etcd API, with its ports bound, but not started yet.
pub(super) struct Beside {
    bound: Vec<Bound>,
    tokens: Option<PathBuf>,
    anonymous: Option<Access>,
    limits: Limits,
}

impl HostFlags {
    /// Returns whether there is to be a host.
    pub(super) fn is_given(&self) -> bool {
        self.host_listen_urls.as_ref().is_some_and(|urls| !urls.is_empty())
    }

    /// Binds the ports of the host, if there is to be one.
    pub(super) async fn bind(&self) -> anyhow::Result<Option<Beside>> {
        let given = Given {
            flag: "host-listen-urls",
            urls: self.host_listen_urls.as_deref().unwrap_or_default(),
            tokens: self.host_tokens.as_deref(),
            anonymous: self.host_anonymous,
            cert: self.host_tls_cert.as_deref(),
            key: self.host_tls_key.as_deref(),
            trusted_ca: self.host_tls_trusted_ca_certs.as_deref(),
        };
        if given.urls.is_empty() {
            return Ok(None);
        }
        let limits = self.limits.limits()?;
        let Opening { ports, anonymous } = given.open()?;
        let bound = ports.bind().await.context("cannot host the repository")?;
        Ok(Some(Beside { bound, tokens: self.host_tokens.clone(), anonymous, limits }))
    }
}

impl Beside {
    /// Starts the host of one repository. `supervisor` starts its tasks again after a panic.
    pub(super) async fn start(
        self,
        repository: &Path,
        owner: Served,
        supervisor: Supervisor,
    ) -> anyhow::Result<Server> {
        let root = repository.parent().context("the repository has no parent folder")?;
        let config = Config {
            tokens: self.tokens,
            anonymous: self.anonymous,
            limits: self.limits,
            owner: Some(Arc::new(owner)),
            only: Some(repository.to_owned()),
            supervisor,
            ..Config::new(root)
        };
        let server = Server::start_on(config, self.bound).await.context("cannot host the repository")?;
        let name = repository.file_name().unwrap_or_default().to_string_lossy();
        for address in server.addresses() {
            tracing::info!(%address, path = format!("/{name}"), "hosting");
        }
        Ok(server)
    }
}
