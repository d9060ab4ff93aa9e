//! What a user with few rights sees, by a real kube-apiserver.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::PostParams;
use kube::{Api, Client as KubeClient};
use serde_json::json;
use trishanku_page::rights::AccessReviews;
use trishanku_testkit::TestCluster;

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
