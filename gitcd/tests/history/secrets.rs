//! Secrets in logs and diffs.

use super::{Store, gitcd};

const KEY: &str = "/registry/secrets/shop/db";

/// A Secret as `kubectl apply` stores it; Helm's keep their values in the same field.
fn secret(kind: &str, password: &str) -> String {
    let applied = format!(r#"{{\"data\":{{\"password\":\"{password}\"}}}}"#);
    format!(
        r#"{{"kind":"{kind}","apiVersion":"v1","metadata":{{"name":"db","namespace":"shop","uid":"u","annotations":{{"kubectl.kubernetes.io/last-applied-configuration":"{applied}"}}}},"data":{{"password":"{password}"}},"type":"Opaque"}}"#
    ) + "\n"
}

#[tokio::test]
async fn logs_and_diffs_show_which_fields_of_a_secret_changed_and_no_values() {
    let mut store = Store::start(&[]).await;
    let first = store.put(KEY, &secret("Secret", "b2xk")).await;
    store.put(KEY, &secret("Secret", "bmV3")).await;
    // Values that cannot be parsed as objects: protobuf, and truncated JSON.
    let broken = "/registry/secrets/shop/broken";
    store.put(broken, "{\"kind\":\"Secret\",\"data\":{\"password\":\"b2xk\"").await;
    store.put(broken, "k8s\0\n\x0c\n\x02v1\x12\x06Secret\x12\x04bmV3").await;
    let map = "/registry/configmaps/shop/db";
    store.put(map, &secret("ConfigMap", "b2xk")).await;
    store.delete(broken).await;
    let repository = store.committed().await;
    let has_value = |text: &str| ["b2xk", "bmV3"].iter().any(|value| text.contains(value));
    let printed = |arguments: &[&str]| {
        let output = gitcd(repository.path(), arguments);
        assert!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let since = format!("--since={first}");
    for arguments in [
        &["log", "-p", KEY][..],
        &["log", "-p", "--whole", KEY],
        &["log", "-p", "--json", KEY],
        &["log", "-p", "--whole", broken],
        &["log", "-p", "--json", broken],
        &["diff", &since, "--whole", "secrets/"],
        &["diff", "--since=nothing", "--whole", "secrets/"],
        &["diff", "--since=nothing", "--json", "secrets/"],
        &["diff", "--since=nothing", "--whole", "--secret-kinds=ConfigMap"],
    ] {
        let text = printed(arguments);
        assert!(!has_value(&text) && text.contains("(secret)"), "{arguments:?}: {text}");
    }
    let text = printed(&["log", "-p", KEY]);
    assert!(text.contains("    ~ data.password: (secret) → (secret)\n"), "{text}");
    assert!(text.contains("last-applied-configuration") && text.contains("    + type: \"Opaque\"\n"), "{text}");
    let text = printed(&["log", "-p", "--secret-kinds=ConfigMap", map]);
    assert!(!has_value(&text) && text.contains("    + data: (secret)\n"), "{text}");
    // Values are printed on explicit request, and for other kinds.
    for arguments in [
        &["log", "-p", "--show-secrets", KEY][..],
        &["diff", &since, "--show-secrets", "secrets/"],
        &["show", KEY],
        &["at", "now", "get", KEY],
        &["log", "-p", map],
    ] {
        let text = printed(arguments);
        assert!(has_value(&text), "{arguments:?}: {text}");
    }
}
