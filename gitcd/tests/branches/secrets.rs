//! What merge commits reveal of Secrets.

use super::two::pair;

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_commit_has_nothing_of_a_secret() {
    let (one, other) = pair().await;
    let key = "/registry/secrets/n/s";
    let secret = |kind: &str, password: &str| {
        format!(
            r#"{{"kind":"{kind}","apiVersion":"v1","metadata":{{"name":"s","namespace":"n","uid":"u","annotations":{{"kubectl.kubernetes.io/last-applied-configuration":"{{{password}}}"}},"labels":{{"l":"{password}"}}}},"data":{{"password":"{password}"}}}}"#
        )
    };
    one.put(key, &secret("Secret", "b2xk")).await;
    one.pull().await;
    other.pull().await;
    one.pull().await;
    one.put(key, &secret("Secret", "b25l")).await;
    other.put(key, &secret("Secret", "b3RoZXI=")).await;
    other.commit().await;
    one.pull().await;
    let message = one.message();
    for field in [
        "data.password",
        "metadata.labels.l",
        "metadata.annotations.[kubectl.kubernetes.io/last-applied-configuration]",
    ] {
        let line = format!("Conflict: {key} {field}: kept (secret), lost (secret)\n");
        assert!(message.contains(&line), "{message}");
    }
    let shown = format!("{message}{:?}", one.server().puller().statuses().all());
    assert!(!["b2xk", "b25l", "b3RoZXI"].iter().any(|value| shown.contains(value)), "{shown}");
}
