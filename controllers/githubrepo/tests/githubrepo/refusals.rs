//! Requests that GitHub rejects: the right condition, and no hot loop.

use std::time::Duration;

use axum::http::Method;
use kube::api::{Api, DeleteParams};
use serde_json::json;
use trishanku_testkit::wait;

use crate::fake::{Fault, TOKEN};
use crate::world::{World, servers, settings};

/// Longer than a hot loop would need to show.
async fn a_while() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}

#[tokio::test]
async fn terminal_errors_are_reported_once_and_not_retried() {
    let mut world = World::new(settings()).await;
    let table: [(&str, Method, &str, u16, &str, &str, &str); 6] = [
        (
            "forbidden",
            Method::POST,
            "/user/repos",
            403,
            "Resource not accessible by personal access token",
            "PermissionMissing",
            "administration=write",
        ),
        ("bad", Method::POST, "/user/repos", 400, "Problems parsing JSON", "RefusedByGitHub", "Problems parsing JSON"),
        (
            "wrong",
            Method::POST,
            "/user/repos",
            422,
            "Validation Failed",
            "RefusedByGitHub",
            "create wrong: Validation Failed",
        ),
        ("hidden", Method::POST, "/user/repos", 404, "Not Found", "NotFoundOnGitHub", "create hidden"),
        (
            "blocked",
            Method::GET,
            "/repos/someone/blocked",
            403,
            "Repository access blocked",
            "PermissionMissing",
            "access blocked",
        ),
        (
            "dismissed",
            Method::GET,
            "/repos/someone/dismissed",
            401,
            "Bad credentials: ECHO",
            "TokenInvalid",
            "put a new one into the Secret",
        ),
    ];
    for (name, method, path, status, message, reason, words) in table {
        let needs = [("x-accepted-github-permissions", "administration=write"), ("x-ratelimit-remaining", "4000")];
        world.fake.refuse(&method, path, 1, status, &needs, message);
        world.apply(name, json!({})).await;
        let stalled = world.is(name, "Stalled", "True", reason).await;
        assert!(stalled.message.contains(words), "{stalled:?}");
        let calls = world.fake.calls().len();
        a_while().await;
        let more = world.fake.calls().split_off(calls);
        assert!(more.is_empty(), "{name}: {more:?}");
    }
    // A missing organization does not mean the user's own account.
    world.apply("lost", json!({"organization": "nobody"})).await;
    let stalled = world.is("lost", "Stalled", "True", "NotFoundOnGitHub").await;
    assert!(stalled.message.contains("create nobody/lost"), "{stalled:?}");
    assert!(world.fake.kingdom.lock().repositories.is_empty());
    world.stop().await;
}

#[tokio::test]
async fn what_goes_away_by_itself_is_tried_again_less_and_less_often() {
    let mut world = World::new(settings()).await;
    world.apply("one", json!({})).await;
    world.is_ready("one").await;
    for (status, reason) in
        [(500, "GitHubUnavailable"), (502, "GitHubUnavailable"), (409, "Conflict"), (418, "UnexpectedAnswer")]
    {
        let before = world.fake.calls().len();
        world.fake.refuse(&Method::GET, "/repos/someone/one", 4, status, &[], "for a moment");
        let unready = world.is("one", "Ready", "False", reason).await;
        assert!(unready.message.contains("for a moment"), "{unready:?}");
        world.is_ready("one").await;
        let calls = world.fake.calls().split_off(before);
        let failed = calls.iter().filter(|call| call.ends_with(&status.to_string())).count();
        assert_eq!(failed, 4, "{calls:?}");
    }
    // The server gives a delay.
    let before = world.fake.calls().len();
    world.fake.refuse(&Method::GET, "/repos/someone/one", 1, 503, &[("retry-after", "3")], "maintenance");
    world.is("one", "Ready", "False", "GitHubUnavailable").await;
    a_while().await;
    assert_eq!(
        world.fake.calls().len(),
        before + 1 + usize::from(world.fake.calls()[before].ends_with("304")),
        "{:?}",
        world.fake.calls()
    );
    world.is_ready("one").await;
    // A response that is not GitHub's.
    world.fake.fail(Method::GET, "/repos/someone/one", Fault::Answer(200, vec![], "<html>ECHO</html>".to_owned()));
    let unready = world.is("one", "Ready", "False", "UnexpectedAnswer").await;
    assert!(unready.message.contains("spec.apiUrl"), "{unready:?}");
    world.is_ready("one").await;
    world.stop().await;
}

#[tokio::test]
async fn a_server_that_is_away_or_silent_is_asked_less_and_less_often() {
    let mut world = World::new(settings()).await;
    // A closed port.
    world.apply("away", json!({"apiUrl": "http://127.0.0.1:9"})).await;
    let unready = world.is("away", "Ready", "False", "GitHubUnreachable").await;
    assert!(unready.message.contains("refused"), "{unready:?}");
    for _ in 0..2 {
        world.fake.fail(Method::GET, "/user", Fault::DoneInSilence);
    }
    world.apply("silent", json!({})).await;
    let unready = world.is("silent", "Ready", "False", "GitHubUnreachable").await;
    assert!(unready.message.contains("no response within"), "{unready:?}");
    world.is_ready("silent").await;
    world.stop().await;
}

#[tokio::test]
async fn a_token_is_changed_without_a_restart() {
    let mut world = World::new(settings()).await;
    world.apply("one", json!({})).await;
    world.is_ready("one").await;
    // The old token expires before the new one exists.
    world.fake.kingdom.lock().tokens.clear();
    world.is("one", "Stalled", "True", "TokenInvalid").await;
    let calls = world.fake.calls().len();
    a_while().await;
    assert_eq!(world.fake.calls().len(), calls);
    let new = "github_pat_SecretThatNobodySees1";
    world.fake.kingdom.lock().tokens.insert(new.to_owned(), ("someone".to_owned(), true));
    world.token(new).await;
    world.is_ready("one").await;
    // An invalid token, then a missing key, then a missing Secret.
    world.token("SecretThatNobodySees with a blank").await;
    let stalled = world.is("one", "Stalled", "True", "TokenInvalid").await;
    assert!(stalled.message.contains("store only the token"), "{stalled:?}");
    world.secret(&[("other", TOKEN)]).await;
    let waiting = world.is("one", "Ready", "False", "SecretNotFound").await;
    assert!(waiting.message.contains("key \"password\" in Secret \"git-cred\""), "{waiting:?}");
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    secrets.delete("git-cred", &DeleteParams::default()).await.unwrap();
    let gone = async || {
        let object = world.objects().get("one").await.unwrap();
        let text = format!("{:?}", object.status);
        if text.contains("waiting for Secret") { Ok(()) } else { Err(text) }
    };
    wait::until("the Secret is missed", gone).await.unwrap();
    world.token(new).await;
    world.is_ready("one").await;
    assert_eq!(world.fake.writes(), ["POST /user/repos 201"]);
    world.stop().await;
}

#[tokio::test]
async fn no_token_is_sent_to_a_server_that_the_operator_has_not_named() {
    let named = trishanku_githubrepo::GitHubSettings { servers: servers(&["github.example.org"]), ..settings() };
    let mut world = World::new(named).await;
    // Write access to objects must not give access to Secrets, or to servers behind the manager.
    world.apply("foreign", json!({})).await;
    let stalled = world.is("foreign", "Stalled", "True", "ServerNotAllowed").await;
    let port = world.url.rsplit_once(':').unwrap().1;
    assert!(stalled.message.contains("--github-api-hosts") && stalled.message.contains(port), "{stalled:?}");
    world.apply("clear", json!({"apiUrl": "http://github.example.org/api/v3"})).await;
    let stalled = world.is("clear", "Stalled", "True", "ServerNotAllowed").await;
    assert!(stalled.message.contains("https://"), "{stalled:?}");
    assert!(world.fake.calls().is_empty(), "{:?}", world.fake.calls());
    // Such an object can be deleted.
    world.objects().delete("clear", &DeleteParams::default()).await.unwrap();
    wait::until_gone(&world.objects(), "clear").await.unwrap();
    world.stop().await;
    // The operator allows the server.
    world.start(settings());
    world.is_ready("foreign").await;
    world.stop().await;
}

#[tokio::test]
async fn no_token_is_sent_to_a_server_that_its_secret_is_not_for() {
    let mut world = World::new(settings()).await;
    world.apply("one", json!({})).await;
    world.is_ready("one").await;
    for (url, words) in [
        (format!("https://someone:{TOKEN}@git.example.org/cluster.git"), "is for git.example.org;"),
        (TOKEN.to_owned(), "no server that can be named"),
        // Another scheme on the same host is another server.
        (world.url.replace("http:", "https:"), "is for 127.0.0.1"),
    ] {
        world.secret(&[("password", TOKEN), ("url", &url)]).await;
        let is_reported = async |name: &str| {
            let stalled = world.is(name, "Stalled", "True", "SecretForOtherServer").await;
            let server = world.url.trim_start_matches("http://");
            let parts = [words, "Secret \"git-cred\"", server, "spec.credentialsSecretName"];
            if parts.iter().all(|part| stalled.message.contains(part)) { Ok(()) } else { Err(stalled.message) }
        };
        wait::until("it is reported", async || is_reported("one").await).await.unwrap();
        let calls = world.fake.calls().len();
        // A new object, and a change.
        world.apply("two", json!({})).await;
        world.apply("one", json!({"description": words})).await;
        for name in ["one", "two"] {
            wait::until("it is reported", async || is_reported(name).await).await.unwrap();
        }
        a_while().await;
        assert_eq!(world.fake.calls().len(), calls, "{:?}", world.fake.calls());
    }
    let url = format!("{}/cluster.git\n", world.url);
    world.secret(&[("password", TOKEN), ("url", &url)]).await;
    world.apply("one", json!({"description": "as it should be"})).await;
    for name in ["one", "two"] {
        world.is_ready(name).await;
    }
    assert_eq!(world.fake.repository("someone", "one").unwrap().1.description.as_deref(), Some("as it should be"));
    world.stop().await;
}

#[tokio::test]
async fn a_response_that_is_not_from_github_is_not_quoted() {
    let mut world = World::new(settings()).await;
    for (name, status, reason) in [("broken", 500, "GitHubUnavailable"), ("teapot", 418, "UnexpectedAnswer")] {
        let path = format!("/repos/someone/{name}");
        world.fake.fail(Method::GET, &path, Fault::Answer(status, vec![], "<html>nobody's business</html>".to_owned()));
        world.apply(name, json!({})).await;
        let unready = world.is(name, "Ready", "False", reason).await;
        assert!(!unready.message.contains("business") && unready.message.contains("GitHub message"), "{unready:?}");
        world.is_ready(name).await;
    }
    world.stop().await;
}
