//! The login, the host and the security headers.

use std::sync::Arc;

use trishanku_page::StartError;
use trishanku_page::rights::UnrestrictedRights;

use crate::client::Client;
use crate::world::World;

const TARGETS: [&str; 8] = [
    "/",
    "/?token=0",
    "/commit/0123456789",
    "/object/configmaps/shop/a",
    "/search?q=a",
    "/events",
    "/page.css",
    "/none",
];

#[tokio::test]
async fn only_the_printed_url_logs_in_and_only_once() {
    let world = World::new(1);
    let served = world.serve(Arc::new(UnrestrictedRights)).await;
    let stranger = served.client();
    for target in TARGETS {
        let response = stranger.get(target).await;
        assert_eq!(response.status, 403, "{target}");
        assert!(response.body.contains("start it again for a new URL"), "{target}: {}", response.body);
    }
    // Neither a look at the head of the response nor another path uses the token up.
    assert_eq!(stranger.send("HEAD", &served.login).await.status, 403);
    assert_eq!(stranger.get(&served.login.replace('/', "/search")).await.status, 403);

    let response = stranger.get(&served.login).await;
    assert_eq!((response.status, response.header("location")), (303, Some("/")));
    let cookie = response.header("set-cookie").expect("it logs in");
    assert!(cookie.ends_with("; HttpOnly; SameSite=Lax; Path=/"), "{cookie}");
    assert_eq!(stranger.get(&served.login).await.status, 403, "the token works once");

    let user = Client { cookie: cookie.split(';').next().expect("it has a value").to_owned(), ..stranger };
    assert_eq!(user.get("/").await.status, 200);
    assert_eq!(user.get("/none").await.status, 404);
    assert_eq!(user.send("POST", "/").await.status, 405);
    let wrong = Client { cookie: format!("{}0", user.cookie), ..user };
    assert_eq!(wrong.get("/").await.status, 403);
}

#[tokio::test]
async fn another_host_is_rejected_even_with_the_cookie() {
    let world = World::new(1);
    let (_served, client) = world.open().await;
    for (host, status) in [
        ("Host: localhost\r\n", 200),
        // A tunnel has another port.
        ("Host: localhost:8080\r\n", 200),
        ("Host: evil.example\r\n", 403),
        ("Host: 127.0.0.1.evil.example\r\n", 403),
        ("Host: localhost@evil.example\r\n", 403),
        ("Host: evil.example@localhost\r\n", 403),
        ("Host: localhost\r\nHost: evil.example\r\n", 403),
        ("Host: \r\n", 403),
    ] {
        let client = Client { host: host.to_owned(), ..client.clone() };
        let response = client.get("/").await;
        assert_eq!(response.status, status, "{host}");
        assert!(status == 200 || response.body.contains("127.0.0.1 or localhost"), "{}", response.body);
    }
}

#[tokio::test]
async fn all_responses_have_the_security_headers() {
    let world = World::new(1);
    let (served, client) = world.open().await;
    for response in [
        client.get("/").await,
        client.get("/page.css").await,
        client.get("/none").await,
        client.send("POST", "/").await,
        served.client().get("/").await,
    ] {
        let policy = response.header("content-security-policy").expect("it has a policy");
        for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
            assert!(policy.contains(part) && !policy.contains("unsafe"), "{policy}");
        }
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(response.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(response.header("cache-control"), Some("no-store"));
    }
}

#[tokio::test]
async fn the_page_is_not_served_to_the_network() {
    let world = World::new(1);
    let refused = world.bind(Arc::new(UnrestrictedRights), "0.0.0.0:0").await;
    assert!(matches!(refused, Err(StartError::Exposed(_))), "without TLS, the token would be readable");
}
