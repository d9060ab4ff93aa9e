//! The status of a merge, as its gitcd reports it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use gitcd::config::{Branches, Listen, PerBranch};
use gitcd::pull::remote::Remote;
use gitcd::recovery::{self, Beginning};
use gitcd::server::{Config, Server};
use gitcd::store::revision::Revision;
use gitcd::tls;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use trishanku_api::{AutomatedMerge, AutomatedMergeStatus};
use trishanku_heaven_plan::STATUS_PORT;
use trishanku_heaven_plan::workload::MERGE;
use trishanku_testkit::wait;

use crate::world::World;

fn git(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=me", "-c", "user.email=me@example.org", "-C"]).arg(folder).args(arguments);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {done:?}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

/// Commits an object with this value; returns the commit.
fn commit(folder: &Path, value: &str) -> String {
    let object = json!({
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": "a", "namespace": "default", "uid": "5ad8a1a4-7a3c-4c5e-9b0a-0d5e3a0c1b2d"},
        "data": {"value": value},
    });
    let path = folder.join("configmaps/default/a");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("{object:#}\n")).unwrap();
    git(folder, &["add", "."]);
    git(folder, &["commit", "--quiet", "--message", value]);
    git(folder, &["rev-parse", "HEAD"])
}

fn remote(name: &str) -> Remote {
    Remote {
        name: name.to_owned(),
        data_reference: format!("refs/heads/{name}"),
        policy: gitcd::merge::Policy::Later,
        scope: gitcd::scope::Scope::default(),
        fast_forward: true,
        fetch: true,
        push_after_merge: false,
        push_on_pull_failure: false,
        credentials: gitcd::pull::credentials::Credentials::default(),
    }
}

/// Runs `gitcd pull` as in a pod, with the files of the Secret.
async fn pull(folder: &Path, upstream: &Path, port: u16) -> Server {
    let branches = Branches {
        repository: folder.join("repo"),
        prefixes: PerBranch::parse("key-prefixes", "default=/registry").unwrap(),
        ..Branches::default()
    };
    let branch = branches.branch(gitcd::config::DEFAULT_NAME);
    recovery::init(&branch, Beginning { revision: Revision::INITIAL, version: 1, depth: None, force: false }).unwrap();
    for name in ["one", "two"] {
        git(&folder.join("repo"), &["remote", "add", name, &upstream.display().to_string()]);
    }
    let file = |name: &str| folder.join(name);
    let files = tls::Files { cert: file("tls.crt"), key: file("tls.key"), trusted_ca: Some(file("ca.crt")) };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let config = Config {
        listen_pages: vec![Listen { flag: "listen-metrics-urls", address, tls: true }],
        tls: Some(files),
        pull: gitcd::pull::Config {
            remotes: vec![remote("one"), remote("two")],
            interval: Some(Duration::from_secs(1)),
            by_hand: false,
            echoes_after: None,
            secret_kinds: gitcd::secrecy::SecretKinds::default(),
            api_server: None,
        },
        ..Config::new(branch)
    };
    Server::start(config).await.unwrap()
}

async fn pod(world: &World, port: u16) {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    let pod = json!({
        "metadata": {
            "name": "live-automerge-1", "labels": {MERGE: "live"},
            "annotations": {STATUS_PORT: port.to_string()},
        },
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "gitcd", "image": "gitcd:1"}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let status = json!({"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
    pods.patch_status("live-automerge-1", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

#[tokio::test]
async fn status_reports_lag_and_conflicts_of_each_remote() {
    let mut world = World::new("live").await;
    let folder = tempfile::tempdir().unwrap();
    let (upstream, work) = (folder.path().join("upstream"), folder.path().join("work"));
    git(folder.path(), &["init", "--quiet", "--bare", "upstream"]);
    git(folder.path(), &["init", "--quiet", "--initial-branch=one", "work"]);
    commit(&work, "base");
    git(&work, &["branch", "two"]);
    let one = commit(&work, "of one");
    git(&work, &["checkout", "--quiet", "two"]);
    let two = commit(&work, "of two");
    git(&work, &["push", "--quiet", "../upstream", "one", "two"]);

    let remotes = ["one", "two"].map(|name| json!({"name": name, "repo": upstream, "branches": {"data": name}}));
    world.apply("live", &json!({"app": {"committerName": "automerge"}, "gitcd": {"git": {"remotes": remotes}}})).await;
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let pair = wait::until_object(&secrets, "live-automerge-status", "it exists", |_: &Secret| true).await.unwrap();
    for (name, value) in pair.data.unwrap() {
        std::fs::write(folder.path().join(name), value.0).unwrap();
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = pull(folder.path(), &upstream, port).await;
    let both = async || {
        let statuses = server.puller().statuses().all();
        let is_merged = ["one", "two"].iter().all(|name| statuses.get(*name).is_some_and(|of| of.merged.is_some()));
        if is_merged { Ok(()) } else { Err(format!("{statuses:?}")) }
    };
    wait::until("both are merged", both).await.unwrap();
    pod(&world, port).await;

    world.is("live", "RepositoryReady", "True", "Serving").await;
    world.is("live", "Synced", "True", "Synced").await;
    let wait_for_status = |what: &'static str, is: fn(&AutomatedMergeStatus) -> bool| {
        let api = world.merges();
        async move {
            let has = |merge: &AutomatedMerge| merge.status.as_ref().is_some_and(is);
            // Metrics are written to the status once a minute.
            let look = async || match api.get("live").await {
                Ok(merge) if has(&merge) => Ok(merge.status.unwrap()),
                other => Err(format!("{other:?}")),
            };
            wait::until_within(Duration::from_mins(3), what, look).await.unwrap()
        }
    };
    let status = wait_for_status("both are merged", |status| {
        status.remotes.len() == 2 && status.remotes.iter().all(|remote| remote.last_merge.is_some())
    })
    .await;
    let named: Vec<_> = status.remotes.iter().map(|remote| remote.name.as_str()).collect();
    let heads: Vec<_> = status.remotes.iter().map(|remote| remote.last_merge.as_deref().unwrap()).collect();
    assert_eq!((named, heads), (vec!["one", "two"], vec![one.as_str(), two.as_str()]));
    assert!(status.remotes.iter().all(|remote| remote.commits_behind == Some(0) && remote.error.is_none()));
    assert!(status.remotes.iter().all(|remote| remote.last_merge_time.is_some()), "{status:?}");
    // Both had changed the same field.
    assert_eq!(status.remotes.iter().filter_map(|remote| remote.conflicts).sum::<i64>(), 1, "{status:?}");
    assert_eq!(status.branch.as_deref(), Some("main"));

    // A changed condition is written at once, with the reason.
    std::fs::rename(&upstream, folder.path().join("away")).unwrap();
    let unsynced = world.is("live", "Synced", "False", "Unreachable").await;
    assert!(unsynced.contains("one: ") && unsynced.contains("two: "), "{unsynced}");
    let status =
        wait_for_status("errors are reported", |status| status.remotes.iter().all(|remote| remote.error.is_some()))
            .await;
    assert_eq!(status.remotes[1].last_merge.as_deref(), Some(two.as_str()), "what was merged stays merged");
    world.stop().await;
    server.stop().await.unwrap();
}
