//! What a user with few rights sees, by a real kube-apiserver.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::PostParams;
use kube::{Api, Client as KubeClient};
use serde_json::json;
use trishanku_page::rights::AccessReviews;
use trishanku_testkit::TestCluster;

use crate::client::Client;
use crate::world::{World, map};

/// Lets jane read all `ConfigMaps` and one Service of a namespace.
async fn grant(cluster: &TestCluster, namespace: &str) {
    let role = json!({"metadata": {"name": "reader"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["services"], "resourceNames": ["web"], "verbs": ["get"]},
    ]});
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    let roles: Api<Role> = Api::namespaced(cluster.client(), namespace);
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.client(), namespace);
    let params = PostParams::default();
    roles.create(&params, &serde_json::from_value(role).expect("it is a Role")).await.expect("it is created");
    bindings.create(&params, &serde_json::from_value(binding).expect("it is one")).await.expect("it is created");
}

fn reviews(cluster: &TestCluster, user: Option<&str>) -> Arc<AccessReviews> {
    let mut config = cluster.config();
    config.auth_info.impersonate = user.map(ToOwned::to_owned);
    Arc::new(AccessReviews::new(KubeClient::try_from(config).expect("the credentials work")))
}

#[tokio::test]
async fn objects_are_shown_only_to_users_who_may_get_them() {
    let cluster = TestCluster::shared().await;
    let own = cluster.namespace("own").await;
    grant(cluster, &own).await;
    let mut world = World::new(2);
    let key = |rest: &str| format!("/registry/{rest}");
    let (open, closed) = (key(&format!("configmaps/{own}/open")), key("configmaps/closed/hushed"));
    let (web, db) = (key(&format!("services/specs/{own}/web")), key(&format!("services/specs/{own}/hushed")));
    let shown = world.put(0, &[(&open, Some(&map("open", "SHOWN")))]).to_string();
    let denied = world.put_by(0, "hushed-user", &[(&closed, Some(&map("x", "HUSHED")))]).to_string();
    let mixed = world.put_by(0, "hushed-user", &[(&web, Some("{}")), (&db, Some(&map("x", "HUSHED")))]).to_string();
    world.put_by(1, "hushed-user", &[(&closed, Some(&map("x", "HUSHED")))]);
    world.merge(1, &[(&open, Some(&map("open", "SHOWN 2")))], "");

    let served = world.serve(reviews(cluster, Some("jane"))).await;
    let jane = served.log_in().await;
    let assert_silent = |target: &str, body: &str| {
        assert!(!body.to_lowercase().contains("hushed"), "{target}: {body}");
    };
    let list = jane.page("/").await;
    assert_silent("/", &list.body);
    assert!(list.body.contains(&format!("configmaps/{own}/open")), "{}", list.body);
    assert!(list.body.contains("not allowed"), "{}", list.body);
    let merged = list.body.split("Merged commits").nth(1).and_then(|rest| rest.split("</ul>").next());
    assert!(merged.is_some_and(|merged| !merged.contains(" by ")), "no author is shown: {}", list.body);

    assert!(jane.page(&format!("/commit/{shown}")).await.body.contains("SHOWN"));
    for id in [&denied, &mixed] {
        let page = jane.page(&format!("/commit/{id}")).await;
        assert_silent(id, &page.body);
        assert!(page.body.contains("1 object: <strong>not allowed</strong>"), "{}", page.body);
    }
    assert!(jane.page(&format!("/commit/{mixed}")).await.body.contains(&format!("services/specs/{own}/web")));

    assert!(jane.page(&format!("/object/configmaps/{own}/open")).await.body.contains("SHOWN"));
    for target in [&closed, &db, &key("configmaps/closed/none"), &key("ranges/serviceips")] {
        let target = target.replace("/registry/", "/object/");
        // Whether it exists is not shown.
        assert_eq!(jane.get(&target).await.status, 403, "{target}");
    }
    let found = jane.page("/search?q=s").await;
    assert_silent("/search", &found.body);
    assert!(found.links().contains(&format!("/object/services/specs/{own}/web")), "one name is allowed");
    // A filter does not say that an object exists.
    for target in ["/?namespace=closed", "/?name=hush", "/?user=hush"] {
        let page = jane.page(target).await;
        for id in [&denied, &mixed] {
            assert!(!page.body.contains(&format!("/commit/{id}")), "{target}: {}", page.body);
        }
    }

    let served = world.serve(reviews(cluster, None)).await;
    let admin = served.log_in().await;
    assert!(admin.page(&format!("/commit/{denied}")).await.body.contains("HUSHED"));
}

/// Returns the commits that a filter finds on all of its pages.
async fn filtered(client: &Client, filter: &str) -> Vec<String> {
    let (mut found, mut next) = (Vec::new(), Some(format!("/?{filter}")));
    while let Some(target) = next {
        let page = client.page(&target).await;
        let links = page.body.split("class=\"subject\" href=\"/commit/").skip(1);
        found.extend(links.map(|rest| rest[..40].to_owned()));
        next = page.next();
    }
    found
}

/// Returns the page of a search without the text and the number of commits, which a slow machine may limit.
async fn searched(client: &Client, text: &str) -> String {
    let body = client.page(&format!("/search?q={text}")).await.body;
    let (start, rest) = body.split_once("In the last ").expect("it has the number of commits");
    let (_, end) = rest.split_once("</p>").expect("the paragraph has an end");
    format!("{start}{end}").replace(text, "")
}

#[tokio::test]
async fn hidden_objects_neither_displace_allowed_ones_nor_show_that_they_exist() {
    let cluster = TestCluster::shared().await;
    let own = cluster.namespace("own").await;
    grant(cluster, &own).await;
    let mut world = World::new(1);
    let key = |name: &str| format!("/registry/configmaps/{own}/{name}");
    let (open, gone) = (key("tea-m"), key("tea-gone"));
    let shown = world.put(0, &[(&open, Some(&map("tea-m", "1")))]).to_string();
    let created = world.put(0, &[(&gone, Some(&map("tea-gone", "1")))]).to_string();
    // More than a page has, and in a namespace that comes before the other one.
    let hidden = |number: usize| (format!("/registry/configmaps/closed/tea-{number}"), map("x", "1"));
    world.put_each(0, "bob", (0..600).map(hidden));
    let deleted = world.put(0, &[(&gone, None)]).to_string();
    let served = world.serve(reviews(cluster, Some("jane"))).await;
    let jane = served.log_in().await;

    let found = jane.page("/search?q=tea").await;
    for name in ["tea-m", "tea-gone"] {
        assert!(found.links().contains(&format!("/object/configmaps/{own}/{name}")), "{name}: {}", found.body);
    }
    assert!(!found.body.contains("closed") && !found.body.contains("more than"), "{}", found.body);
    let [hidden, none] = [searched(&jane, "tea-599").await, searched(&jane, "coffee").await];
    assert_eq!(hidden, none, "a hidden object is as one that does not exist");

    assert_eq!(filtered(&jane, "name=tea-m").await, [&shown[..]]);
    assert_eq!(filtered(&jane, "name=tea").await, [deleted, created, shown]);
    assert!(filtered(&jane, "name=tea-599").await.is_empty());
}

#[tokio::test]
async fn objects_beyond_the_limit_of_requests_are_not_checked_until_the_next_reload() {
    let cluster = TestCluster::shared().await;
    let own = cluster.namespace("own").await;
    grant(cluster, &own).await;
    let mut world = World::new(1);
    for batch in 0..5 {
        let keys: Vec<String> =
            (0..60).map(|number| format!("/registry/services/specs/{own}/hushed-{batch}-{number}")).collect();
        let puts: Vec<_> = keys.iter().map(|key| (key.as_str(), Some("{}"))).collect();
        world.put(0, &puts);
    }
    let served = world.serve(reviews(cluster, Some("jane"))).await;
    let jane = served.log_in().await;
    let first = jane.page("/").await;
    assert!(first.body.contains("not checked") && first.body.contains("not allowed"), "{}", first.body);
    assert!(!first.body.contains("hushed"), "{}", first.body);
    let second = jane.page("/").await;
    assert!(!second.body.contains("not checked") && second.body.contains("not allowed"), "{}", second.body);
}

#[tokio::test]
async fn access_reviews_that_take_too_long_are_a_problem_and_not_a_denial() {
    let world = World::new(1);
    // It accepts connections, and does not answer.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", silent.local_addr().expect("it is bound")).parse().expect("it is a URL");
    let client = KubeClient::try_from(kube::Config::new(url)).expect("no credentials are needed");
    let limit = std::time::Duration::from_millis(200);
    let served = world.serve(Arc::new(AccessReviews::new(client).within(limit))).await;
    let response = served.log_in().await.get("/").await;
    assert_eq!(response.status, 503);
    assert!(
        response.body.contains("has not answered the access reviews of this page within 200ms"),
        "{}",
        response.body
    );
}

#[tokio::test]
async fn without_kube_apiserver_nothing_is_shown() {
    let mut world = World::new(1);
    world.put(0, &[("/registry/configmaps/shop/a", Some(&map("a", "1")))]);
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let url = format!("http://{}", port.expect("a port is free")).parse().expect("it is a URL");
    let client = KubeClient::try_from(kube::Config::new(url)).expect("no credentials are needed");
    let served = world.serve(Arc::new(AccessReviews::new(client))).await;
    let user = served.log_in().await;
    for target in ["/", "/object/configmaps/shop/a", "/search?q=shop"] {
        let response = user.get(target).await;
        assert_eq!(response.status, 503, "{target}");
        assert!(
            response.body.contains("--no-review") && !response.body.contains("kind: ConfigMap"),
            "{}",
            response.body
        );
    }
}
