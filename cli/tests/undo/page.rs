//! Undo on the web page: what `trishanku ui` serves, by HTTP.

use serde_json::{Value, json};

use crate::ui::Ui;
use crate::ui::client::{Client, Response};
use crate::world::{World, map};

pub(crate) async fn serve(world: &World, user: Option<&str>, options: &[&str]) -> Ui {
    let [kubeconfig, repository] = world.places(user);
    let kubeconfig = kubeconfig.to_str().expect("the path is UTF-8");
    Ui::start(&repository, &[&["--kubeconfig", kubeconfig], options].concat()).await
}

/// Confirms the preview of an undo, as its form does.
pub(crate) async fn confirm(ui: &Ui, target: &str, preview: &Response, headers: &str) -> Response {
    let fields: Vec<(&str, String)> =
        ["token", "plan", "object"].into_iter().filter_map(|name| Some((name, preview.hidden(name)?))).collect();
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    ui.client.post(target, &fields, headers).await
}

/// Returns the link to the preview of the undo of a commit on a page.
fn preview_link(page: &Response) -> String {
    let mut links = page.links().into_iter();
    links.find(|link| link.contains("/undo")).unwrap_or_else(|| panic!("no link to an undo: {}", page.body))
}

#[tokio::test]
async fn a_commit_is_undone_after_a_preview_and_the_undo_is_undone() {
    let world = World::new("page").await;
    world.create("configmaps", map("a", "4")).await;
    world.patch("configmaps/a", json!({"data": {"tea": "<5>"}})).await;
    let commit = world.last_commit("configmaps/NS/a").await;
    let ui = serve(&world, None, &[]).await;

    let target = preview_link(&ui.client.page(&format!("/commit/{commit}")).await);
    let preview = ui.client.page(&target).await;
    assert!(preview.body.contains("data.tea") && preview.body.contains("&lt;5&gt;"), "{}", preview.body);
    assert_eq!(world.get("configmaps/a").await["data"]["tea"], "<5>", "a preview changes nothing");

    let undone = confirm(&ui, &target, &preview, "Origin: null\r\nSec-Fetch-Site: same-origin\r\n").await;
    assert_eq!(undone.status, 200, "{}", undone.body);
    assert_eq!(world.get("configmaps/a").await["data"]["tea"], "4");
    assert!(undone.body.contains(&world.last_commit("configmaps/NS/a").await), "{}", undone.body);

    // Confirmed once more, as by a double click.
    assert_eq!(confirm(&ui, &target, &preview, "").await.body, undone.body);
    let next = preview_link(&undone);
    let preview_of_next = ui.client.page(&next).await;
    assert_eq!(confirm(&ui, &next, &preview_of_next, "").await.status, 200);
    assert_eq!(world.get("configmaps/a").await["data"]["tea"], "<5>");
    // As by a reload of the first outcome, although its plan would be the same again.
    assert_eq!(confirm(&ui, &target, &preview, "").await.body, undone.body);
    assert_eq!(world.get("configmaps/a").await["data"]["tea"], "<5>");
}

#[tokio::test]
async fn one_object_of_a_commit_is_undone_from_its_own_page() {
    let world = World::new("pageone").await;
    world.create("configmaps", map("a", "4")).await;
    world.create("configmaps", map("b", "4")).await;
    world.delete("configmaps/a").await;
    // The page reads what is committed.
    world.last_commit("configmaps/NS/a").await;
    let ui = serve(&world, None, &[]).await;
    let target = preview_link(&ui.client.page(&format!("/object/configmaps/{}/a", world.namespace)).await);
    let preview = ui.client.page(&target).await;
    let path = target.split('?').next().expect("there is a path");
    let undone = confirm(&ui, path, &preview, "").await;
    assert_eq!(undone.status, 200, "{}", undone.body);
    assert_eq!(world.get("configmaps/a").await["data"]["tea"], "4");
    let other = ui.client.get(&format!("{path}?object=configmaps/{}/b", world.namespace)).await;
    assert_eq!(other.status, 404, "the commit does not change it");
}

#[tokio::test]
async fn a_plan_that_has_changed_since_the_preview_changes_nothing() {
    let world = World::new("pagestale").await;
    world.create("configmaps", map("a", "4")).await;
    world.patch("configmaps/a", json!({"data": {"tea": "5", "salt": "1"}})).await;
    let commit = world.last_commit("configmaps/NS/a").await;
    let ui = serve(&world, None, &[]).await;
    let target = format!("/commit/{commit}/undo");
    let preview = ui.client.page(&target).await;
    world.patch("configmaps/a", json!({"data": {"salt": "2"}})).await;
    let stale = confirm(&ui, &target, &preview, "").await;
    assert_eq!(stale.status, 409, "{}", stale.body);
    assert_eq!(world.get("configmaps/a").await["data"], json!({"tea": "5", "salt": "2"}));
    assert!(stale.body.contains("stays, edited later"), "{}", stale.body);
    assert_eq!(confirm(&ui, &target, &stale, "").await.status, 200);
    assert_eq!(world.get("configmaps/a").await["data"], json!({"tea": "4", "salt": "2"}));
}

#[tokio::test]
async fn only_a_form_of_the_page_undoes_something() {
    let world = World::new("pageforged").await;
    world.create("configmaps", map("a", "4")).await;
    world.patch("configmaps/a", json!({"data": {"tea": "5"}})).await;
    let commit = world.last_commit("configmaps/NS/a").await;
    let ui = serve(&world, None, &[]).await;
    let target = format!("/commit/{commit}/undo");
    let preview = ui.client.page(&target).await;
    let hidden = |name| preview.hidden(name).expect("there is a form");
    let (plan, token) = (hidden("plan"), hidden("token"));
    let without = ui.client.post(&target, &[("plan", &plan)], "").await;
    let wrong = ui.client.post(&target, &[("plan", &plan), ("token", &plan)], "").await;
    assert_eq!([without.status, wrong.status], [403, 403]);
    for headers in [
        "Origin: http://evil.example.org\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Origin: http://127.0.0.1.example.org\r\n",
    ] {
        assert_eq!(confirm(&ui, &target, &preview, headers).await.status, 403, "{headers}");
    }
    let other = Client { cookie: String::new(), ..ui.client.clone() };
    assert_eq!(other.post(&target, &[("plan", &plan), ("token", &token)], "").await.status, 403);
    let unknown = ui.client.post(&target, &[("plan", "4711"), ("token", &token)], "").await;
    assert_eq!(unknown.status, 409, "without a preview, there is one first: {}", unknown.body);
    assert_eq!(world.get("configmaps/a").await["data"]["tea"], "5");
    assert_eq!(
        confirm(&ui, &target, &preview, "Origin: http://localhost:4711\r\n").await.status,
        200,
        "as by a tunnel"
    );
}

#[tokio::test]
async fn kube_apiserver_decides_who_may_undo() {
    let world = World::new("pagerights").await;
    world.create("configmaps", map("a", "4")).await;
    world.patch("configmaps/a", json!({"data": {"tea": "5"}})).await;
    let commit = world.last_commit("configmaps/NS/a").await;
    let (reader, stranger) = (format!("reader-{}", world.namespace), format!("stranger-{}", world.namespace));
    world.grant(&reader, &["get"], &["configmaps"]).await;
    let target = format!("/commit/{commit}/undo");

    let ui = serve(&world, Some(&reader), &[]).await;
    let preview = ui.client.page(&target).await;
    assert!(preview.body.contains("would be rejected"), "{}", preview.body);
    let undone = confirm(&ui, &target, &preview, "").await;
    assert!(undone.body.contains("failed") && undone.body.contains("forbidden"), "{}", undone.body);
    assert!(undone.body.contains("Nothing was undone") && !undone.body.contains("not committed"), "{}", undone.body);
    drop(ui);

    let ui = serve(&world, Some(&stranger), &[]).await;
    let denied = ui.client.get(&target).await;
    assert_eq!(denied.status, 403, "{}", denied.body);
    assert!(!denied.body.contains("tea"), "{}", denied.body);
    assert_eq!(world.get("configmaps/a").await["data"]["tea"], "5");
}

#[tokio::test]
async fn what_the_user_may_not_read_is_not_in_a_preview() {
    let world = World::new("pagehidden").await;
    let namespace = world.namespace.clone();
    let secret = |value: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hushed"}, "stringData": {"pin": value}});
    world.create("secrets", secret("4711")).await;
    world.patch("secrets/hushed", json!({"stringData": {"pin": "4712"}})).await;
    let of_secret = world.last_commit("secrets/NS/hushed").await;
    let of_namespace = world.first_commit("namespaces/NS").await;
    let reader = format!("reader-{namespace}");
    world.grant(&reader, &["get"], &["configmaps", "namespaces"]).await;

    let ui = serve(&world, Some(&reader), &[]).await;
    // Neither whether the commit changes it, nor whether it exists.
    for object in [format!("secrets/{namespace}/hushed"), format!("secrets/{namespace}/none")] {
        let denied = ui.client.get(&format!("/commit/{of_secret}/undo?object={object}")).await;
        assert_eq!(denied.status, 403, "{}", denied.body);
    }
    let preview = ui.client.get(&format!("/commit/{of_namespace}/undo?object=namespaces/{namespace}")).await;
    assert!(!preview.body.contains("hushed"), "{}", preview.body);
    assert!(preview.body.contains("would be deleted with it"), "{}", preview.body);
    drop(ui);

    let ui = serve(&world, None, &[]).await;
    let target = format!("/commit/{of_secret}/undo");
    let preview = ui.client.page(&target).await;
    let undone = confirm(&ui, &target, &preview, "").await;
    assert_eq!(undone.status, 200, "{}", undone.body);
    for body in [&preview.body, &undone.body] {
        assert!(!["4711", "4712", "NDcxMQ", "NDcxMg"].iter().any(|value| body.contains(value)), "{body}");
    }
    let pin = world.get("secrets/hushed").await["data"]["pin"].clone();
    assert_eq!(pin, "NDcxMQ==", "it was undone");
}

#[tokio::test]
async fn a_page_that_only_reads_offers_no_undo() {
    let world = World::new("pageread").await;
    world.create("configmaps", map("a", "4")).await;
    let commit = world.last_commit("configmaps/NS/a").await;
    let ui = serve(&world, None, &["--read-only"]).await;
    let page = ui.client.page(&format!("/commit/{commit}")).await;
    assert!(!page.body.contains("/undo\""), "{}", page.body);
    assert_eq!(ui.client.get(&format!("/commit/{commit}/undo")).await.status, 404);
    assert_eq!(world.get("configmaps/a").await["data"], json!({"tea": "4"}) as Value);
}
