//! Metrics over TLS, for authorized clients.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use http_body_util::BodyExt;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::PostParams;
use kube::client::Body;
use kube::{Api, Client};
use serde_json::json;
use trishanku_framework::Manager;
use trishanku_framework::cache::Scope;
use trishanku_framework::serve::{Addresses, BindError, Server};
use trishanku_testkit::{Fault, Proxy, Rule, TestCluster, wait};

use crate::support::{Running, run};

/// A folder with a certificate, which is removed when this is dropped.
struct Certificates(PathBuf);

impl Certificates {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("metrics-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// Replaces the certificate; returns it.
    fn renew(&self) -> Vec<u8> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        std::fs::write(self.0.join("tls.crt"), made.cert.pem()).unwrap();
        std::fs::write(self.0.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
        made.cert.der().to_vec()
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

/// Requests metrics, from a server with this certificate, or with any.
async fn ask(address: SocketAddr, trusted: Option<&[u8]>, token: Option<&str>) -> kube::Result<(u16, String)> {
    let authorization = token.map(|token| format!("Bearer {token}"));
    let (head, text) = ask_with(address, trusted, authorization.as_deref()).await?;
    Ok((head.status.as_u16(), text))
}

/// Requests metrics with this value of the header `Authorization`.
async fn ask_with(
    address: SocketAddr,
    trusted: Option<&[u8]>,
    authorization: Option<&str>,
) -> kube::Result<(http::response::Parts, String)> {
    let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
    config.default_retry = false;
    config.root_cert = trusted.map(|certificate| vec![certificate.to_vec()]);
    config.accept_invalid_certs = trusted.is_none();
    let mut request = http::Request::get("/metrics");
    if let Some(authorization) = authorization {
        request = request.header("authorization", authorization);
    }
    let answer = Client::try_from(config)?.send(request.body(Body::empty()).unwrap()).await?;
    let (head, body) = answer.into_parts();
    let text = body.collect().await?.to_bytes();
    Ok((head, String::from_utf8(text.to_vec()).unwrap()))
}

/// Creates a service account, which may `get` /metrics if that `is_allowed`; returns a token.
async fn account(cluster: &TestCluster, namespace: &str, name: &str, is_allowed: bool) -> String {
    let (client, parameters) = (cluster.client(), PostParams::default());
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let mut account = ServiceAccount::default();
    account.metadata.name = Some(name.to_owned());
    accounts.create(&parameters, &account).await.unwrap();
    if is_allowed {
        let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
        let permission = json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]});
        allow(cluster, &format!("scraper-{namespace}"), &permission, &subject).await;
    }
    let requested = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    let issued = accounts.create_token_request(name, &parameters, &requested).await.unwrap();
    issued.status.unwrap().token.unwrap()
}

async fn allow(cluster: &TestCluster, name: &str, permission: &serde_json::Value, subject: &serde_json::Value) {
    let (client, parameters) = (cluster.client(), PostParams::default());
    let role: ClusterRole = serde_json::from_value(json!({"metadata": {"name": name}, "rules": [permission]})).unwrap();
    Api::<ClusterRole>::all(client.clone()).create(&parameters, &role).await.unwrap();
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let binding = json!({"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]});
    let binding: ClusterRoleBinding = serde_json::from_value(binding).unwrap();
    Api::<ClusterRoleBinding>::all(client).create(&parameters, &binding).await.unwrap();
}

/// Serves metrics as a user of its own, with no more than the permissions that this takes.
async fn serve(cluster: &TestCluster, namespace: &str, folder: Option<&Path>) -> (SocketAddr, String, Running) {
    serve_at(cluster.config(), namespace, folder).await
}

/// The same with the configuration of a client.
async fn serve_at(mut config: kube::Config, namespace: &str, folder: Option<&Path>) -> (SocketAddr, String, Running) {
    let addresses = Addresses { metrics: "localhost:0".parse().unwrap(), ..Addresses::default() };
    let server = Server::bind(&addresses).await.unwrap().secure_metrics(folder).unwrap();
    let (address, user) = (server.metrics().unwrap(), format!("metrics-of-{namespace}"));
    config.auth_info.impersonate = Some(user.clone());
    let running = run(Manager::with_scope(config, Scope::namespaces([namespace])).serve(server));
    (address, user, running)
}

/// Lets the manager ask about tokens.
async fn allow_reviews(cluster: &TestCluster, user: &str) {
    let groups = ["authentication.k8s.io", "authorization.k8s.io"];
    let reviews = ["tokenreviews", "subjectaccessreviews"];
    let permission = json!({"apiGroups": groups, "resources": reviews, "verbs": ["create"]});
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user});
    allow(cluster, user, &permission, &subject).await;
}

#[tokio::test]
async fn metrics_are_served_to_clients_that_may_read_them_and_to_no_other() {
    let cluster = TestCluster::shared().await;
    let namespace = cluster.namespace("secured").await;
    let (address, user, running) = serve(cluster, &namespace, None).await;
    let (scraper, stranger) =
        (account(cluster, &namespace, "scraper", true).await, account(cluster, &namespace, "stranger", false).await);
    // A manager that may not ask about tokens serves no client.
    let refused = wait::until("it is served", async || ask(address, None, Some(&scraper)).await);
    assert_eq!(refused.await.unwrap(), (500, String::new()));
    allow_reviews(cluster, &user).await;
    let allowed = wait::until("the permission is known", async || match ask(address, None, Some(&scraper)).await {
        Ok((200, text)) => Ok(text),
        other => Err(format!("{other:?}")),
    });
    let text = allowed.await.unwrap();
    assert!(text.contains("# TYPE rest_client_requests_total counter"), "{text}");
    let status = async |token| ask(address, None, token).await.unwrap();
    assert_eq!(status(None).await, (401, "a service account token is required\n".to_owned()));
    assert_eq!(status(Some("nonsense")).await, (401, "the token is not valid\n".to_owned()));
    let forbidden = (403, "forbidden: requires `get` on /metrics\n".to_owned());
    assert_eq!(status(Some(&stranger)).await, forbidden);
    // The scheme has no case, and a refusal says what is asked for.
    let spelled = format!("bEARER {scraper}");
    let with = async |authorization| ask_with(address, None, authorization).await.unwrap().0;
    assert_eq!(with(Some(spelled.as_str())).await.status, 200);
    let challenge = |head: http::response::Parts| {
        assert_eq!(head.status, 401);
        head.headers.get("www-authenticate").map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(challenge(with(None).await).as_deref(), Some("Bearer"));
    assert_eq!(challenge(with(Some("Basic YTpi")).await).as_deref(), Some("Bearer"));
    assert_eq!(challenge(with(Some("Bearer nonsense")).await).as_deref(), Some("Bearer error=\"invalid_token\""));
    // Answers are kept.
    let reviews = || {
        let created = cluster.audit().into_iter().filter(|entry| entry.user() == user && entry.code() == 201);
        created.filter(|entry| entry.resource().ends_with("reviews")).count()
    };
    let before = reviews();
    assert!(before >= 5, "two for each of two valid tokens, and one for the other: {before}");
    for _ in 0..5 {
        assert_eq!(status(Some(&scraper)).await.0, 200);
        assert_eq!(status(Some(&stranger)).await, forbidden);
        assert_eq!(status(Some("nonsense")).await.0, 401);
    }
    assert_eq!(reviews(), before);
    // Requests with one token share its review.
    let together = futures::future::join_all((0..12).map(|_| status(Some("another")))).await;
    assert!(together.iter().all(|(code, _)| *code == 401), "{together:?}");
    assert_eq!(reviews(), before + 1);
    running.stop().await;
    assert!(ask(address, None, Some(&scraper)).await.is_err(), "the endpoint is closed");
}

#[tokio::test]
async fn unknown_tokens_cost_the_apiserver_few_reviews_at_a_time() {
    let cluster = TestCluster::shared().await;
    let namespace = cluster.namespace("many-tokens").await;
    let proxy = Proxy::start(cluster).await;
    let (address, user, running) = serve_at(proxy.config(), &namespace, None).await;
    let scraper = account(cluster, &namespace, "scraper", true).await;
    allow_reviews(cluster, &user).await;
    let allowed = wait::until("the permission is known", async || match ask(address, None, Some(&scraper)).await {
        Ok((200, _)) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    allowed.await.unwrap();
    let reviews = || proxy.seen().iter().filter(|seen| seen.uri.contains("tokenreviews")).count();
    let before = reviews();
    proxy.add(Rule::new(Fault::Hang).path("/tokenreviews"));
    let tokens: Vec<String> = (0..10).map(|number| format!("random-{number}")).collect();
    let all = futures::future::join_all(tokens.iter().map(|token| ask(address, None, Some(token))));
    let meanwhile = async {
        let under_way =
            wait::until("four reviews", async || if reviews() >= before + 4 { Ok(()) } else { Err(reviews()) });
        under_way.await.unwrap();
        // A known token needs none.
        assert_eq!(ask(address, None, Some(&scraper)).await.unwrap().0, 200);
    };
    let (all, ()) = tokio::join!(all, meanwhile);
    let codes = |code: u16| all.iter().filter(|answer| answer.as_ref().is_ok_and(|(found, _)| *found == code)).count();
    assert!(codes(500) >= 4 && codes(500) + codes(503) == 10, "{all:?}");
    assert!(reviews() <= before + 8, "four at a time, for ten seconds each: {}", reviews() - before);
    running.stop().await;
}

#[tokio::test]
async fn a_changed_certificate_is_used_for_the_next_connection() {
    let cluster = TestCluster::shared().await;
    let namespace = cluster.namespace("renewed").await;
    let certificates = Certificates::new("renewed");
    let addresses = Addresses { metrics: "localhost:0".parse().unwrap(), ..Addresses::default() };
    let without = Server::bind(&addresses).await.unwrap().secure_metrics(Some(&certificates.0));
    assert!(matches!(without, Err(BindError::Certificate(_))), "{without:?}");
    let first = certificates.renew();
    let (address, _, running) = serve(cluster, &namespace, Some(&certificates.0)).await;
    let served = wait::until("it is served", async || ask(address, Some(&first), None).await);
    assert_eq!(served.await.unwrap().0, 401);
    let second = certificates.renew();
    assert_eq!(ask(address, Some(&second), None).await.unwrap().0, 401);
    assert!(ask(address, Some(&first), None).await.is_err());
    running.stop().await;
}

#[tokio::test]
async fn a_certificate_is_read_only_if_metrics_are_served() {
    let off = Server::bind(&Addresses::default()).await.unwrap();
    let nowhere = Path::new("/nonexistent");
    assert!(off.secure_metrics(Some(nowhere)).is_ok());
}
