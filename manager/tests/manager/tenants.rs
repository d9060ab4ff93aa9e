//! The component `namespaced`: a manager without a right outside its namespace, and the roles of users.

use kube::api::Api;
use trishanku_api::TrishankuHeaven;
use trishanku_testkit::{TestCluster, wait};

use crate::composition::Composition;
use crate::process::{Manager, deploy, documented, kubectl, run};

const MANAGER: &str = "system:serviceaccount:team-a:trishanku-manager";
const KINDS: [&str; 3] = ["trishankuheavens", "automatedmerges", "githubrepositories"];
const GROUP: &str = "controllers.trishanku.org.trishanku.org";

/// Binds all roles that are aggregated to `view`, `edit` or `admin`. In a cluster, kube-controller-manager aggregates them.
fn bind(cluster: &TestCluster, user: &str, roles: &[&str]) {
    for aggregated in roles {
        let selector = format!("--selector=rbac.authorization.k8s.io/aggregate-to-{aggregated}=true");
        let found = run(cluster, &["get", "clusterroles", &selector, "--output=name"]);
        let names = found.lines().filter_map(|line| line.strip_prefix("clusterrole.rbac.authorization.k8s.io/"));
        for name in names {
            let (binding, role, user) =
                (format!("{user}-{name}"), format!("--clusterrole={name}"), format!("--user={user}"));
            run(cluster, &["create", "rolebinding", &binding, &role, &user, "--namespace=team-a"]);
        }
        assert!(found.contains("/trishanku-"), "{aggregated}: {found}");
    }
}

/// Whether a user may do something with a resource, or with `RESOURCE/SUBRESOURCE`.
fn may(cluster: &TestCluster, user: &str, verb: &str, resource: &str, namespace: &str) -> bool {
    let (user, namespace) = (format!("--as={user}"), format!("--namespace={namespace}"));
    let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
    let sub = format!("--subresource={sub}");
    // Its status is an error if the answer is no.
    let answer = kubectl(cluster, &["auth", "can-i", verb, resource, &user, &namespace, &sub]);
    String::from_utf8(answer.stdout).unwrap().trim() == "yes"
}

/// What a cluster administrator does once for all tenants, and once for this one.
async fn prepared() -> TestCluster {
    let cluster = TestCluster::start().await.unwrap();
    run(&cluster, &["apply", "--server-side", "--kustomize", &deploy().join("cluster").display().to_string()]);
    run(
        &cluster,
        &["wait", "--for=condition=Established", "crd/trishankuheavens.controllers.trishanku.org.trishanku.org"],
    );
    run(&cluster, &["create", "namespace", "team-a"]);
    cluster
}

#[tokio::test]
async fn the_administrator_of_a_namespace_installs_a_manager_that_has_rights_only_there() {
    let cluster = prepared().await;
    bind(&cluster, "alice", &["view", "edit", "admin"]);
    let more = "namespace: team-a\n";
    let composition = Composition::of(&["namespaced", "high-availability", "network-policies", "tracing"], more);
    let installed = run(&cluster, &["apply", "--server-side", "--kustomize", &composition.path(), "--as=alice"]);
    assert_eq!(installed.lines().count(), composition.objects().len(), "{installed}");

    let arguments =
        ["--leader-elect", "--leader-election-namespace=team-a", "--namespaces=team-a", "--allow-own-namespace"];
    let manager = Manager::start(&cluster, MANAGER, &arguments);
    manager.page(8081, "/readyz").await;
    let shared = deploy().join("samples/shared.yaml").display().to_string();
    run(&cluster, &["apply", "--namespace=team-a", "--filename", &shared, "--as=alice"]);
    let heavens: Api<TrishankuHeaven> = Api::namespaced(cluster.client(), "team-a");
    let is_ready = |heaven: &TrishankuHeaven| {
        let conditions = heaven.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    wait::until_object(&heavens, "cluster", "it is ready", is_ready).await.unwrap();
    for (resource, namespace) in [("secrets", "default"), ("deployments", "kube-system"), (KINDS[0], "default")] {
        assert!(!may(&cluster, MANAGER, "list", resource, namespace), "{resource} in {namespace}");
    }
    assert!(may(&cluster, MANAGER, "list", "secrets", "team-a"));

    // Metrics: refused until a cluster administrator allows the manager to check tokens.
    run(&cluster, &["create", "serviceaccount", "scraper", "--namespace=team-a"]);
    let reader = ["create", "clusterrolebinding", "scraper", "--clusterrole=trishanku-metrics-reader"];
    run(&cluster, &[&reader[..], &["--serviceaccount=team-a:scraper"]].concat());
    let token = run(&cluster, &["create", "token", "scraper", "--namespace=team-a"]);
    let refused = manager.figures(Some(token.trim()));
    assert!(refused.starts_with("500"), "{refused}");
    documented(&cluster, "kubectl create clusterrolebinding trishanku-manager-metrics-team-a ");
    let read = wait::until("metrics", async || {
        let answer = manager.figures(Some(token.trim()));
        if answer.starts_with("200") { Ok(answer) } else { Err(answer) }
    });
    assert!(read.await.unwrap().contains("controller_runtime_reconcile_total"));
    assert!(manager.end().await.success());

    let denied: Vec<_> = cluster
        .audit()
        .into_iter()
        .filter(|entry| entry.user() == MANAGER && entry.code() == 403 && !entry.uri.contains("tokenreviews"))
        .map(|entry| format!("{} {}", entry.verb, entry.uri))
        .collect();
    assert!(denied.is_empty(), "{denied:?}");
}

#[tokio::test]
async fn viewers_read_and_editors_write_and_only_administrators_of_a_namespace_change_statuses() {
    let cluster = prepared().await;
    bind(&cluster, "victor", &["view"]);
    bind(&cluster, "erika", &["view", "edit"]);
    bind(&cluster, "alice", &["view", "edit", "admin"]);
    for kind in KINDS {
        let resource = format!("{kind}.{GROUP}");
        for user in ["victor", "erika", "alice"] {
            assert!(may(&cluster, user, "watch", &resource, "team-a"), "{user} {kind}");
            assert!(!may(&cluster, user, "list", &resource, "default"), "{user} {kind}");
            let (writes, status) = (may(&cluster, user, "create", &resource, "team-a"), format!("{resource}/status"));
            assert_eq!(writes, user != "victor", "{user} {kind}");
            assert_eq!(may(&cluster, user, "patch", &status, "team-a"), user == "alice", "{user} {kind}");
        }
        assert!(!may(&cluster, "stranger", "get", &resource, "team-a"), "{kind}");
    }
}
