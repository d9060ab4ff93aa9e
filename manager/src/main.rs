//! Runs the controllers of Trishanku: heavens, merges and repositories.

mod args;

use std::io::Write as _;

use anyhow::{Context as _, ensure};
use clap::Parser as _;
use trishanku_framework::cache::Scope;
use trishanku_framework::serve::{Addresses, Server};
use trishanku_framework::webhook::{WebhookEndpoint, Webhooks};
use trishanku_framework::{Manager, lease, stop_signal};
use trishanku_githubrepo::GitHubSettings;
use trishanku_heaven::{HeavenInjector, Settings};
use trishanku_service::plain_http::is_exposed;

use crate::args::{Args, Command};

/// The name of the lease, and of the service in traces.
const NAME: &str = "trishanku-manager";
/// The name of the webhooks' certificates and configurations.
const WEBHOOKS: &str = "trishanku";
/// The bodies of all reviews together. Reviews of pods have a few KiB; decoded, these bytes still fit into the memory limit of the
/// deployment (256 MiB).
const REVIEWS_BYTES: usize = 16 << 20;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(Command::Crds) = args.command {
        let mut out = trishanku_stdio::plain_stdout();
        write!(out, "{}", trishanku_api::definitions())?;
        return Ok(out.flush()?);
    }
    let telemetry = args.telemetry(NAME).init()?;
    let addresses = Addresses {
        probes: args.health_probe_bind_address,
        metrics: args.metrics_bind_address,
        debug: args.debug_bind_address,
    };
    let mut server = Server::bind(&addresses).await?;
    if args.metrics_secure {
        server = server.secure_metrics(args.metrics_cert_path.as_deref())?;
    }
    let scope = if args.namespaces.is_empty() { Scope::All } else { Scope::namespaces(args.namespaces.clone()) };
    let config = kube::Config::infer().await?;
    check_encryption(&config)?;
    // All replicas serve the webhook, so its client must work without the lease.
    let client = kube::Client::try_from(config.clone())?;
    let mut manager = Manager::with_scope(config, scope).telemetry(&telemetry).serve(server);
    if args.leader_elect {
        manager = manager.leader_election(lease::Settings::new(&args.leader_election_namespace, NAME));
    }
    tracing::info!(version = env!("CARGO_PKG_VERSION"), leader_elect = args.leader_elect, "starting");
    let settings = Settings { images: args.images(), own_namespace: args.own_namespace(), ..Settings::default() };
    if args.inject_pods {
        let own = args
            .pod_namespace
            .as_deref()
            .context("--inject-pods needs the manager's own namespace in POD_NAMESPACE")?;
        let endpoint = WebhookEndpoint::service(own, &args.webhook_service);
        let webhooks = Webhooks::bind(WEBHOOKS, &args.webhook_bind_address, endpoint).await?;
        let webhooks = webhooks.body_budget_bytes(REVIEWS_BYTES);
        let injector = HeavenInjector::new(&manager.caches(), client, settings.clone());
        manager = manager.webhooks(injector.add_to(webhooks, own));
    }
    let heavens = trishanku_heaven::controller(settings);
    let merges = trishanku_automerge::controller(args.images(), args.own_namespace());
    let github = GitHubSettings { servers: args.servers(), ..GitHubSettings::default() };
    let repositories = trishanku_githubrepo::controller(github);
    manager.controller(heavens).controller(merges).controller(repositories).run(stop_signal()?).await?;
    telemetry.end().await;
    Ok(())
}

/// Refuses to send the credentials of a kubeconfig over plain HTTP to another machine.
fn check_encryption(config: &kube::Config) -> anyhow::Result<()> {
    let (user, url) = (&config.auth_info, &config.cluster_url);
    let has_secret = [&user.token, &user.password].into_iter().any(Option::is_some)
        || user.token_file.is_some()
        || user.exec.is_some()
        || user.auth_provider.is_some();
    ensure!(
        !has_secret || !is_exposed(&url.to_string()),
        "the credentials of the kubeconfig are not sent to http://{}, because plain HTTP does not encrypt them: use https://",
        url.host().unwrap_or_default()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_sent_over_plain_http_to_another_machine() {
        let config = |url: &str, token_file: Option<&str>| {
            let mut config = kube::Config::new(url.parse().unwrap());
            config.auth_info.token_file = token_file.map(ToOwned::to_owned);
            check_encryption(&config)
        };
        let error = config("http://k.example.org:8080", Some("token")).unwrap_err().to_string();
        assert!(error.contains("http://k.example.org") && error.contains("use https://"), "{error}");
        for (url, token) in [
            ("https://k.example.org", Some("token")),
            ("http://127.0.0.1:8080", Some("token")),
            ("http://k.example.org:8080", None),
        ] {
            config(url, token).unwrap();
        }
    }
}
