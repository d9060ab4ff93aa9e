//! What the page does not do: change immutable fields, and stop in the middle of an undo.

use std::time::Duration;

use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::page::{confirm, serve};
use crate::world::{World, map};

/// How long a condition may take on a busy machine.
const WITHIN: Duration = Duration::from_mins(2);

#[tokio::test]
async fn immutable_fields_need_a_command_line_which_the_page_shows() {
    let world = World::new("pageimmutable").await;
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    world.create("rolebindings", json!({"metadata": {"name": "a"}, "roleRef": reference})).await;
    let key = "rolebindings/NS/a";
    let base = world.last_commit(key).await;
    let edit = |text: String| Some(text.replace(r#""name": "view""#, r#""name": "edit""#));
    let commit = world.merge_of("Bob", &base, key, edit).await;
    world.until("rolebindings/a", "the merge has changed it", |binding| binding["roleRef"]["name"] == "edit").await;

    let ui = serve(&world, None, &[]).await;
    let target = format!("/commit/{commit}/undo");
    let preview = ui.client.page(&target).await;
    let command = format!(" --recreate {}", &commit[..10]);
    assert!(preview.body.contains("Immutable fields differ") && preview.body.contains(&command), "{}", preview.body);
    let namespace = &world.namespace;
    let of_object = ui.client.page(&format!("{target}?object=rolebindings/{namespace}/a")).await;
    let of_object_alone = format!("{command} rolebinding.rbac.authorization.k8s.io/a -n {namespace}");
    assert!(of_object.body.contains(&of_object_alone), "{}", of_object.body);
    let undone = confirm(&ui, &target, &preview, "").await;
    assert!(undone.body.contains("Nothing was undone") && undone.body.contains(&command), "{}", undone.body);

    world.run(&format!("undo{command}")).await.ok().says("recreated RoleBinding");
    assert_eq!(world.get("rolebindings/a").await["roleRef"], reference);
}

/// kube-apiserver asks a webhook about each write, and waits until the test closes the connection.
#[tokio::test]
async fn ctrl_c_waits_for_the_undo_that_is_in_progress() {
    let world = World::new("pagestop").await;
    world.create("configmaps", map("a", "4")).await;
    world.patch("configmaps/a", json!({"data": {"tea": "5"}})).await;
    let commit = world.last_commit("configmaps/NS/a").await;
    let ui = serve(&world, None, &[]).await;
    let target = format!("/commit/{commit}/undo");
    let preview = ui.client.page(&target).await;

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let name = format!("hook.{}.example.org", world.namespace);
    let hook = json!({
        "name": name, "failurePolicy": "Ignore", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 30, "clientConfig": {"url": format!("https://{address}/")},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["configmaps"]}],
    });
    world.create("validatingwebhookconfigurations", json!({"metadata": {"name": name}, "webhooks": [hook]})).await;
    let is_asked = async || {
        let probe = world.patch_dry("configmaps/a", json!({"data": {"milk": "1"}}));
        tokio::select! {
            asked = listener.accept() => asked.is_ok(),
            _patched = probe => false,
        }
    };
    world.until_so("the webhook is asked", is_asked).await;

    let stop = async {
        let held = timeout(WITHIN, listener.accept()).await.expect("the undo is asked about").expect("it connects");
        ui.interrupt();
        world.until_so("the page waits", async || ui.has_printed("An undo is in progress")).await;
        assert_eq!((ui.exit(), &world.get("configmaps/a").await["data"]["tea"]), (None, &json!("5")));
        // kube-apiserver ignores a webhook that fails.
        drop((held, listener));
    };
    let (undone, ()) = tokio::join!(confirm(&ui, &target, &preview, ""), stop);
    assert_eq!(undone.status, 200, "{}", undone.body);
    assert_eq!(world.get("configmaps/a").await["data"]["tea"], "4");
    world.until_so("the page stops", async || ui.exit().is_some()).await;
    assert!(ui.exit().is_some_and(|status| status.success()) && ui.has_printed("updated ConfigMap"));
    world.delete(&format!("validatingwebhookconfigurations/{name}")).await;
}
