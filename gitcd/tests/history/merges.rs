//! The history of two stores that merge each other.

use serde_json::{Value, json};

use super::{Store, Written, gitcd_json};
use crate::support::{Kind, Launch, Repository, eventually};

/// Starts two stores that continuously merge each other.
pub(super) async fn pair() -> (tempfile::TempDir, [Store; 2]) {
    let temporary = tempfile::tempdir().expect("the temporary folder is writable");
    let folder = temporary.path();
    let path = |name: &str| folder.join(name).join("repo.git");
    let mut stores = Vec::new();
    for (name, other) in [("one", "other"), ("other", "one")] {
        std::fs::create_dir(folder.join(name)).expect("the folder is writable");
        let repository = Repository::init(&path(name));
        repository.git(&["remote", "add", "origin", &path(other).display().to_string()]);
        let launch = Launch::new(Kind::Gitcd).folder(&folder.join(name)).argument("--key-prefixes=/registry");
        let launch = launch.argument("--commit-granularity=revision").argument("--remote-names=origin");
        stores.push(launch.argument("--pull-ticker-duration=100ms").start().await);
    }
    let mut all = Vec::new();
    for server in stores {
        let client = server.client().await;
        all.push(Store { server, client, written: Written::new() });
    }
    (temporary, all.try_into().unwrap_or_else(|_| panic!("two stores were started")))
}

#[tokio::test]
async fn each_of_two_that_merge_one_another_shows_its_own_history() {
    let (_folder, [mut one, mut other]) = pair().await;
    let mut own: [Vec<i64>; 2] = Default::default();
    for round in 0..8 {
        let object =
            |n: u32| format!("{{\"kind\":\"K\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"x\"}},\"n\":{n}}}\n");
        // Concurrent writes, so that each has to merge the other.
        let [first, second] = ["/registry/k/one", "/registry/k/other"];
        let value = object(round);
        let (ours, theirs) = tokio::join!(one.put(first, &value), other.put(second, &value));
        own[0].push(ours);
        own[1].push(theirs);
        eventually("equal heads", async || {
            let heads = [&one, &other].map(|store| async {
                let page: gitcd::status::Status = serde_json::from_str(&store.server.page("/status").await).ok()?;
                (page.branches[0].commit_lag_revisions == 0).then(|| page.branches[0].head.clone())
            });
            let [one, other] = heads;
            let (one, other) = tokio::join!(one, other);
            (one.is_some() && one == other).then_some(())
        })
        .await;
    }
    for (store, key, own) in [(&one, "/registry/k/one", &own[0]), (&other, "/registry/k/other", &own[1])] {
        let repository = store.server.repository();
        let log = gitcd_json(repository.path(), &["log", "--json", "-p", "--limit=1000", key]);
        let wanted: Vec<i64> = own.iter().rev().copied().collect();
        let found: Vec<_> =
            log.as_array().unwrap().iter().map(|one| one["revision"].as_i64().unwrap_or_default()).collect();
        assert_eq!(found, wanted, "{key}: {log:#}");
        for (at, one) in log.as_array().unwrap().iter().rev().enumerate().skip(1) {
            assert_eq!(one["fields"], json!([{ "path": "n", "from": at - 1, "to": at }]), "{key}: {one:#}");
        }
        // The other store's changes are in the log, too, complete however they were merged.
        let theirs = if key.ends_with("one") { "/registry/k/other" } else { "/registry/k/one" };
        let log = gitcd_json(repository.path(), &["log", "--json", "-p", "--limit=1000", theirs]);
        let last = |one: &Value| {
            one["fields"].as_array().unwrap().iter().find(|field| field["path"] == "n").map(|field| field["to"].clone())
        };
        assert_eq!(last(&log[0]), Some(json!(7)), "{log:#}");
        let revisions = log.as_array().unwrap().iter().filter_map(|one| one["revision"].as_i64());
        assert!(revisions.is_sorted_by(|one, other| one > other), "{log:#}");
        // The branch's log has all own commits, with their revisions.
        let branch = gitcd_json(repository.path(), &["log", "--json", "--limit=1000"]);
        let lasts: Vec<_> =
            branch.as_array().unwrap().iter().filter_map(|one| one["revisions"]["last"].as_i64()).collect();
        assert!(lasts.is_sorted_by(|one, other| one > other), "{branch:#}");
        for revision in own {
            assert!(lasts.contains(revision), "{revision}: {branch:#}");
            let value = gitcd_json(repository.path(), &["show", "--json", &format!("--at={revision}"), key]);
            let at = own.iter().position(|one| one == revision).unwrap();
            assert!(value["value"].as_str().unwrap().contains(&format!("\"n\":{at}}}")), "{revision}: {value:#}");
        }
    }
}
