//! Two branches.

use std::collections::BTreeSet;

use gitcd::pull::remote::Remote;
use gitcd::scope::Scope;

use crate::world::{Branch, remote};

fn map(name: &str, data: &str) -> String {
    format!(
        "{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"n\",\"uid\":\"{name}\"}},\"data\":{data}}}\n"
    )
}

pub(crate) async fn pair() -> (Branch, Branch) {
    let (mut one, mut other) = (Branch::new("one").await, Branch::new("other").await);
    one.follow(&other, remote("other"));
    other.follow(&one, remote("one"));
    one.restart().await;
    other.restart().await;
    (one, other)
}

const KEY: &str = "/registry/configmaps/n/a";

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_both_survive_and_both_make_the_same_commit() {
    let (one, other) = pair().await;
    one.put(KEY, &map("a", r#"{"x":"1","y":"1"}"#)).await;
    one.commit().await;
    other.pull().await;
    one.pull().await;
    assert_eq!(one.head(), other.head(), "unrelated histories are linked once");
    assert_eq!(other.get(KEY), one.get(KEY));

    one.put(KEY, &map("a", r#"{"x":"2","y":"1"}"#)).await;
    other.put(KEY, &map("a", r#"{"x":"1","y":"3"}"#)).await;
    let (before, _) = (one.commit().await, other.commit().await);
    // Each merges the other's commit from before the merge: neither waits for the other.
    let fetched = other.head();
    one.pull().await;
    assert_ne!(one.head(), before);
    assert_eq!(one.get(KEY), Some(map("a", r#"{"x":"2","y":"3"}"#)));
    other.pull().await;
    assert_eq!(other.head(), one.head());
    assert_ne!(other.head(), fetched);
    assert_eq!(other.content(), one.content());
    let message = one.message();
    assert!(message.starts_with("merge ") && !message.contains("Revision"), "{message}");
    // A further pull makes no commit.
    let head = one.head();
    one.pull().await;
    other.pull().await;
    assert_eq!((one.head(), other.head()), (head, head));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_is_reported_in_the_commit_and_counted() {
    let (one, other) = pair().await;
    one.put(KEY, &map("a", r#"{"x":"1"}"#)).await;
    one.pull().await;
    other.pull().await;
    one.pull().await;
    one.put(KEY, &map("a", r#"{"x":"2"}"#)).await;
    other.put(KEY, &map("a", r#"{"x":"3"}"#)).await;
    other.commit().await;
    one.pull().await;
    other.pull().await;
    assert_eq!(one.content(), other.content());
    let message = one.message();
    assert!(message.contains("Conflict: /registry/configmaps/n/a data.x: kept "), "{message}");
    let status = one.server().puller().statuses().all();
    assert_eq!(status["other"].conflicts, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_scope_leaves_out_is_not_deleted_when_it_is_merged_back() {
    let (mut one, mut other) = (Branch::new("one").await, Branch::new("other").await);
    let scope = Scope::new("^/registry/configmaps/", "").unwrap();
    one.follow(&other, remote("other"));
    other.follow(&one, Remote { scope, ..remote("one") });
    one.restart().await;
    other.restart().await;
    let secret = "/registry/secrets/n/s";
    one.put(KEY, &map("a", "{}")).await;
    one.put(secret, "text").await;
    one.commit().await;
    for round in 0..3 {
        other.pull().await;
        assert_eq!(other.get(secret), None);
        assert!(other.message().contains("Scope-Include"), "{}", other.message());
        other.put("/registry/configmaps/n/b", &map("b", &format!("{{\"round\":\"{round}\"}}"))).await;
        other.commit().await;
        one.pull().await;
        assert_eq!(one.get(secret).as_deref(), Some("text"), "round {round}");
        assert_eq!(one.get("/registry/configmaps/n/b"), other.get("/registry/configmaps/n/b"));
        one.put(KEY, &map("a", &format!("{{\"round\":\"{round}\"}}"))).await;
        one.put("/registry/secrets/n/t", &round.to_string()).await;
        one.commit().await;
    }
    one.delete(secret).await;
    one.commit().await;
    other.pull().await;
    one.pull().await;
    assert_eq!(one.get(secret), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_wrote_reaches_others_whatever_it_is() {
    let (one, other) = pair().await;
    let values = [
        (KEY, "{\"kind\":"),
        ("/registry/configmaps/n/b", "kind: ConfigMap\nmetadata: {name: [\n"),
        ("/registry/configmaps/n/c", "{\"kind\":\"ConfigMap\",\"metadata\":{}}\n"),
        ("/registry/configmaps/n/d", &map("another", "{}")),
    ];
    for (key, value) in values {
        one.put(key, value).await;
    }
    one.commit().await;
    other.pull().await;
    one.pull().await;
    for (key, value) in values {
        assert_eq!(other.get(key).as_deref(), Some(value));
    }
    assert_eq!((one.head(), one.content()), (other.head(), other.content()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_survives_a_restart_and_its_history_is_served() {
    let (mut one, other) = pair().await;
    for number in 0..20 {
        other.put(&format!("/registry/configmaps/n/k{number}"), &map(&format!("k{number}"), "{}")).await;
    }
    other.commit().await;
    let before = one.server().store().revision();
    one.pull().await;
    let after = one.server().store().revision();
    assert_eq!(after.since(before), 20, "one revision for each key");
    let content = one.content();
    one.restart().await;
    assert_eq!(one.content(), content);
    assert_eq!(one.server().store().revision(), after);
    let entries = one.server().store().log(before.next(), 100);
    assert_eq!(entries.len(), 20);
    assert!(entries.iter().all(|entry| entry.changes().len() == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_push_to_one_branch_lose_nothing() {
    let (mut one, mut other, upstream) =
        (Branch::new("one").await, Branch::new("other").await, Branch::new("upstream").await);
    let pushing = || Remote { push_after_merge: true, ..remote("up") };
    // The upstream branch has no server: only pushes move it.
    let mut upstream = upstream;
    upstream.stop().await;
    one.follow(&upstream, pushing());
    other.follow(&upstream, pushing());
    one.restart().await;
    other.restart().await;
    for round in 0..5 {
        one.put(&format!("/registry/configmaps/n/one{round}"), &map(&format!("one{round}"), "{}")).await;
        other.put(&format!("/registry/configmaps/n/other{round}"), &map(&format!("other{round}"), "{}")).await;
        let (first, second) = tokio::join!(one.pull(), other.pull());
        let ((), ()) = (first, second);
    }
    one.pull().await;
    other.pull().await;
    one.pull().await;
    assert_eq!(one.content(), other.content());
    assert_eq!(one.content().len(), 10);
    assert_eq!(upstream.head(), one.head());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_clone_takes_over_and_never_gives_a_revision_a_second_meaning() {
    let (mut one, mut upstream) = (Branch::new("one").await, Branch::new("up").await);
    upstream.stop().await;
    upstream.empty();
    one.follow(&upstream, Remote { push_after_merge: true, ..remote("up") });
    one.restart().await;
    one.put(KEY, &map("a", r#"{"x":"1"}"#)).await;
    one.pull().await;
    // Acknowledged and read, then lost with the disk.
    let lost = one.put(KEY, &map("a", r#"{"x":"2"}"#)).await;
    one.stop().await;

    let mut clone = Branch::clone_of(&upstream, "one").await;
    clone.start().await;
    assert_eq!(clone.get(KEY), Some(map("a", r#"{"x":"1"}"#)));
    let store = clone.server().store();
    assert!(store.revision() > lost, "revision {} must be greater than {lost}", store.revision());
    assert!(store.compacted() > lost, "a watcher at {lost} must relist");
    let next = clone.put(KEY, &map("a", r#"{"x":"3"}"#)).await;
    assert!(next > lost);
}

/// Objects without a `uid`, as etcd clients other than kube-apiserver write them.
#[tokio::test(flavor = "multi_thread")]
async fn objects_without_an_identity_stay_what_their_client_wrote() {
    let (one, other) = pair().await;
    let value =
        |name: &str, n: &str| map(name, &format!(r#"{{"n":"{n}"}}"#)).replace(&format!(",\"uid\":\"{name}\""), "");
    let key = |name: usize| format!("/registry/configmaps/n/k{name}");
    for number in 0..10 {
        let name = format!("k{number}");
        one.put(&key(number), &value(&name, "1")).await;
        one.commit().await;
        other.pull().await;
        // Written again before the other branch's merge of it comes back.
        one.put(&key(number), &value(&name, "2")).await;
        one.pull().await;
        other.pull().await;
        one.pull().await;
        for branch in [&one, &other] {
            assert_eq!(branch.get(&key(number)), Some(value(&name, "2")));
        }
    }
    assert_eq!(one.head(), other.head());
    for branch in [&one, &other] {
        let conflicts: u64 = branch.server().puller().statuses().all().values().map(|status| status.conflicts).sum();
        assert_eq!(conflicts, 0);
    }
}

/// The number of conflicts that a branch has found, over all remotes.
fn conflicts(branch: &Branch) -> u64 {
    branch.server().puller().statuses().all().values().map(|status| status.conflicts).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_both_changed_alike_and_one_changes_back_is_as_before_on_both() {
    // One branch reverts the change after both have merged it, or before the other has.
    for both_merge_first in [true, false] {
        let (one, other) = pair().await;
        one.put(KEY, &map("a", r#"{"x":"1","y":"1"}"#)).await;
        one.commit().await;
        other.pull().await;
        one.pull().await;
        assert_eq!(one.head(), other.head());

        let changed = map("a", r#"{"x":"2","y":"1"}"#);
        for branch in [&one, &other] {
            branch.put(KEY, &changed).await;
            branch.commit().await;
        }
        assert_ne!(one.head(), other.head(), "each has its own commit");
        // The contents are equal, so a patient pull would leave the merge to the other branch for a while.
        let puller = one.server().puller().clone();
        puller.pull_impatiently(&puller.remotes()[0]).await.unwrap();
        assert!(one.message().starts_with("merge "), "{}", one.message());
        if both_merge_first {
            other.pull().await;
            assert_eq!(one.head(), other.head());
        }
        assert_eq!((one.get(KEY), other.get(KEY)), (Some(changed.clone()), Some(changed)));

        one.put(KEY, &map("a", r#"{"x":"1","y":"1"}"#)).await;
        other.put(KEY, &map("a", r#"{"x":"2","y":"3"}"#)).await;
        one.commit().await;
        other.pull().await;
        one.pull().await;
        for branch in [&one, &other] {
            assert_eq!(branch.get(KEY), Some(map("a", r#"{"x":"1","y":"3"}"#)), "{both_merge_first}");
            assert_eq!(conflicts(branch), 0, "{both_merge_first}");
        }
        assert_eq!(one.head(), other.head());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_a_join_to_the_other_may_take_the_common_change_back_at_once() {
    let (one, other) = pair().await;
    one.put(KEY, &map("a", r#"{"x":"1","y":"1"}"#)).await;
    one.commit().await;
    other.pull().await;
    one.pull().await;
    for branch in [&one, &other] {
        branch.put(KEY, &map("a", r#"{"x":"2","y":"1"}"#)).await;
        branch.commit().await;
    }
    let (waits, joins) = if one.head() > other.head() { (&one, &other) } else { (&other, &one) };
    let alike = [waits.head(), joins.head()];
    waits.pull().await;
    assert_eq!(waits.head(), alike[0], "it leaves the merge to the other branch");

    waits.put(KEY, &map("a", r#"{"x":"1","y":"1"}"#)).await;
    waits.commit().await;
    let repository = git2::Repository::open(waits.path()).unwrap();
    let joined = repository.find_commit(waits.head()).unwrap().parent(0).unwrap();
    let parents: BTreeSet<_> = joined.parent_ids().collect();
    assert_eq!(parents, BTreeSet::from(alike), "the new commit must descend from both heads");

    joins.put(KEY, &map("a", r#"{"x":"2","y":"3"}"#)).await;
    joins.commit().await;
    joins.pull().await;
    waits.pull().await;
    for branch in [waits, joins] {
        assert_eq!(branch.get(KEY), Some(map("a", r#"{"x":"1","y":"3"}"#)));
        assert_eq!(conflicts(branch), 0);
    }
    assert_eq!(waits.head(), joins.head());
    let fsck =
        std::process::Command::new("git").arg("-C").arg(waits.path()).args(["fsck", "--full", "--strict"]).output();
    assert!(fsck.as_ref().unwrap().status.success(), "{fsck:?}");
}

/// `--no-fast-forwards`: a branch never adopts the other's commit.
#[tokio::test(flavor = "multi_thread")]
async fn without_fast_forwards_each_merge_is_a_commit_with_both_as_parents() {
    let (mut one, mut other) = (Branch::new("one").await, Branch::new("other").await);
    one.follow(&other, Remote { fast_forward: false, ..remote("other") });
    other.follow(&one, remote("one"));
    one.restart().await;
    other.restart().await;
    one.pull().await;
    other.pull().await;
    for round in 0..3 {
        let before = one.head();
        other.put(KEY, &map("a", &format!("{{\"x\":\"{round}\"}}"))).await;
        let theirs = other.commit().await;
        one.pull().await;
        let repository = git2::Repository::open(one.path()).unwrap();
        let parents: BTreeSet<_> = repository.find_commit(one.head()).unwrap().parent_ids().collect();
        assert_eq!(parents, BTreeSet::from([before, theirs]), "round {round}");
        assert!(one.message().starts_with("merge "), "{}", one.message());
        assert_eq!(one.content(), other.content());
        other.pull().await;
        assert_eq!(other.head(), one.head(), "the other branch may fast-forward");
    }
    let head = one.head();
    one.pull().await;
    other.pull().await;
    assert_eq!((one.head(), other.head()), (head, head), "no further commits");
}

/// `--no-fetches`: another program fetches, such as a sidecar.
#[tokio::test(flavor = "multi_thread")]
async fn without_fetches_what_somebody_else_has_fetched_is_merged() {
    let (mut one, other) = (Branch::new("one").await, Branch::new("other").await);
    one.follow(&other, Remote { fetch: false, ..remote("other") });
    one.restart().await;
    let fetch = || {
        let command = std::process::Command::new("git")
            .arg("-C")
            .arg(one.path())
            .args(["fetch", "--quiet", "other", "+refs/heads/main:refs/remotes/other/main"])
            .output();
        assert!(command.as_ref().unwrap().status.success(), "{command:?}");
    };
    let value = map("a", r#"{"x":"1"}"#);
    let puller = one.server().puller().clone();
    let refused = puller.pull(&puller.remotes()[0]).await.unwrap_err().to_string();
    assert!(refused.contains("another program must fetch refs/heads/main"), "{refused}");
    fetch();
    one.pull().await;
    other.put(KEY, &value).await;
    let theirs = other.commit().await;
    one.pull().await;
    assert_eq!(one.get(KEY), None, "not fetched yet");
    fetch();
    one.pull().await;
    assert_eq!(one.get(KEY), Some(value));
    let repository = git2::Repository::open(one.path()).unwrap();
    assert!(one.head() == theirs || repository.graph_descendant_of(one.head(), theirs).unwrap());
}

/// A `CustomResourceDefinition` whose `spec.parts` is a list with the extensions in `described`, as kube-apiserver stores it.
fn definition(kind: &str, described: &serde_json::Value) -> String {
    let mut parts = serde_json::json!({"type": "array", "items": {"type": "object",
        "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}}});
    parts.as_object_mut().unwrap().extend(described.as_object().unwrap().clone());
    let (plural, singular) = (format!("{}s", kind.to_lowercase()), kind.to_lowercase());
    let schema = serde_json::json!({"type": "object",
        "properties": {"spec": {"type": "object", "properties": {"parts": parts}}}});
    serde_json::json!({
        "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": format!("{plural}.example.com"), "uid": kind},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
    .to_string()
        + "\n"
}

#[tokio::test(flavor = "multi_thread")]
async fn elements_of_a_custom_resources_list_are_merged_as_its_definition_in_the_store_says() {
    let key = |kind: &str| format!("/registry/example.com/{}s/n/w", kind.to_lowercase());
    // On one line, as kube-apiserver stores it.
    let object = |kind: &str, sizes: [u8; 3]| {
        let [a, b, c] = sizes;
        format!(
            "{{\"apiVersion\":\"example.com/v1\",\"kind\":\"{kind}\",\"metadata\":{{\"name\":\"w\",\"namespace\":\"n\",\"uid\":\"w\"}},\
             \"spec\":{{\"parts\":[{{\"name\":\"a\",\"size\":{a}}},{{\"name\":\"b\",\"size\":{b}}},{{\"name\":\"c\",\"size\":{c}}}]}}}}\n"
        )
    };
    let kinds = [
        ("Widget", serde_json::json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]})),
        ("Gadget", serde_json::json!({"x-kubernetes-list-type": "atomic"})),
    ];
    let (one, other) = pair().await;
    for (kind, described) in &kinds {
        let name = format!("{}s.example.com", kind.to_lowercase());
        let definitions = "/registry/apiextensions.k8s.io/customresourcedefinitions";
        one.put(&format!("{definitions}/{name}"), &definition(kind, described)).await;
        one.put(&key(kind), &object(kind, [1, 1, 1])).await;
    }
    one.commit().await;
    other.pull().await;
    one.pull().await;
    assert_eq!((one.head(), one.content()), (other.head(), other.content()));

    for (kind, _) in &kinds {
        one.put(&key(kind), &object(kind, [2, 1, 1])).await;
        other.put(&key(kind), &object(kind, [1, 1, 3])).await;
    }
    one.commit().await;
    other.commit().await;
    one.pull().await;
    other.pull().await;
    assert_eq!((one.head(), one.content()), (other.head(), other.content()));
    assert_eq!(one.get(&key("Widget")), Some(object("Widget", [2, 1, 3])), "both changes, on one line");
    let whole = one.get(&key("Gadget"));
    assert!(
        [[2, 1, 1], [1, 1, 3]].into_iter().any(|sizes| whole == Some(object("Gadget", sizes))),
        "an atomic list must come from one side: {whole:?}"
    );
    let message = one.message();
    let conflicts: Vec<_> = message.lines().filter(|line| line.starts_with("Conflict: ")).collect();
    assert!(
        matches!(&conflicts[..], [conflict] if conflict.contains("/gadgets/n/w spec.parts")),
        "only the atomic list conflicts: {message}"
    );
}
