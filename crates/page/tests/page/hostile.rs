//! Names and values that attack the page, and Secrets.

use crate::world::{World, map};

const NAMES: [&str; 7] = [
    "/registry/configmaps/shop/<script>alert(1)</script>",
    "/registry/configmaps/shop/\" onmouseover=\"alert(1)",
    "/registry/configmaps/shop/' autofocus onfocus='alert(1)",
    "/registry/configmaps/shop/a\u{202e}b\u{1b}[31m\u{7f}",
    "/registry/configmaps/shop/..",
    "/registry/configmaps/shop/a?b=c#d%2e%00&amp;",
    "/registry/configmaps/shop/שלום",
];
const VALUE: &str = "</code><img src=x onerror=alert(1)>\u{202e}\u{0}";

/// Checks that a page has the elements of this program alone.
fn assert_inert(target: &str, body: &str) {
    assert_eq!(body.matches("<script").count(), 1, "{target}: {body}");
    for wrong in
        ["<img", "onerror=alert(1)>\"", "\" onmouseover=\"", " style=", "\u{202e}", "\u{1b}", "\u{7f}", "\u{0}"]
    {
        assert!(!body.contains(wrong), "{target} has {wrong:?}: {body}");
    }
}

#[tokio::test]
async fn hostile_names_and_values_are_inert_and_their_links_work() {
    let mut world = World::new(1);
    for name in NAMES {
        world.put_by(0, "<b>jane</b>\u{202e}", &[(name, Some(&map("x", "1")))]);
        world.put_by(0, "\"><img src=x>", &[(name, Some(&map("x", VALUE)))]);
    }
    let (_served, client) = world.open().await;
    let list = client.page("/").await;
    assert_inert("/", &list.body);
    for commit in list.links().iter().filter(|link| link.starts_with("/commit/")) {
        assert_inert(commit, &client.page(commit).await.body);
    }
    let found = client.page("/search?q=shop").await;
    assert_inert("/search", &found.body);
    let objects: Vec<String> = found.links().into_iter().filter(|link| link.starts_with("/object")).collect();
    assert_eq!(objects.len(), NAMES.len());
    for link in objects {
        let page = client.page(&link).await;
        assert_inert(&link, &page.body);
        assert!(page.body.contains("&lt;img src=x onerror=alert(1)&gt;"), "{link} shows the value: {}", page.body);
    }
    for target in [
        "/search?q=%3Cscript%3E%22onmouseover%3D",
        "/?name=%22%3E%3Cscript%3E",
        "/object/%3Cscript%3E",
        "/commit/%3Cscript%3E",
    ] {
        assert_inert(target, &client.get(target).await.body);
    }
}

#[tokio::test]
async fn long_values_are_cut_with_a_link_to_all() {
    let mut world = World::new(1);
    let long = "x".repeat(1 << 20);
    let commit = world.put(0, &[("/registry/configmaps/shop/long", Some(&map("long", &long)))]);
    let (_served, client) = world.open().await;
    for target in ["/object/configmaps/shop/long".to_owned(), format!("/commit/{commit}")] {
        let page = client.page(&target).await;
        assert!(page.body.len() < 200_000, "{target} has {} bytes", page.body.len());
        let whole = page.links().into_iter().find(|link| link.contains("whole=1")).expect("there is a link to all");
        assert!(client.page(&whole).await.body.contains(&long), "{whole}");
    }
}

#[tokio::test]
async fn values_of_secrets_are_on_no_page() {
    let mut world = World::new(2);
    let secret = |value: &str| {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "card", "namespace": "shop",
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": value}},
            "data": {"pin": value},
        })
        .to_string()
    };
    let vault =
        |value: &str| format!(r#"{{"apiVersion":"example.org/v1","kind":"Vault","spec":{{"{value}":"{value}"}}}}"#);
    let (card, box_) = ("/registry/secrets/shop/card", "/registry/example.org/vaults/shop/box");
    for value in ["HUSH1", "HUSH2"] {
        world.put(0, &[(card, Some(&secret(value))), (box_, Some(&vault(value)))]);
    }
    world.put(1, &[(card, Some(&secret("HUSH3")))]);
    let notes = format!(
        "Conflict: {card} data.pin: kept \"HUSH2\", lost \"HUSH3\"\n\
                         Conflict: {box_} spec.HUSH2: kept \"HUSH2\", lost \"HUSH3\"\n\
                         Conflict: /registry/secrets/shop/gone data.pin: kept \"HUSH2\", lost \"HUSH3\"\n"
    );
    world.merge(1, &[], &notes);
    world.put(0, &[(card, None)]);
    let (_served, client) = world.open().await;
    let list = client.page("/").await;
    let mut targets: Vec<String> = list.links().into_iter().filter(|link| link.starts_with("/commit/")).collect();
    assert!(targets.len() >= 5, "{targets:?}");
    targets.extend(["/", "/object/secrets/shop/card", "/object/example.org/vaults/shop/box"].map(ToOwned::to_owned));
    let mut hidden = 0;
    for target in &targets {
        let body = client.page(target).await.body;
        assert!(!body.contains("HUSH"), "{target}: {body}");
        hidden += body.matches("(secret)").count();
        let body = client.page(&format!("{target}?whole=1")).await.body;
        assert!(!body.contains("HUSH"), "{target} with whole values: {body}");
    }
    assert!(hidden > 10, "that values differ is shown");
}
