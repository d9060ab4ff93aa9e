//! Runs the plan of a heaven: every step with its arguments, files and probes, with the real programs.
//!
//! Processes replace containers, and folders replace volumes; everything else is as in a pod.
#![expect(clippy::unwrap_used, reason = "a failing helper fails the test")]

mod machine;

use serde_json::{Value, json};
use trishanku_heaven_plan::plan::EntryPoints;

use crate::machine::Machine;

/// A heaven on its own branch, whose remote is a folder.
fn spec(upstream: &str) -> Value {
    json!({
        "certificates": {"controller": {"userName": "system:kube-scheduler", "groupName": "system:kube-scheduler"}},
        "eventsEtcd": {"local": {}},
        "gitcd": {
            "git": {
                "branches": {"data": "scheduler/data", "metadata": "scheduler/metadata"},
                "remotes": [{"repo": upstream, "branches": {"data": "cluster/data"}}],
            },
            "pull": {"tickerDuration": "1s", "pushOnPullFailure": true},
        },
        "app": {"podTemplate": {"spec": {"containers": [{"name": "app", "image": "app:1"}]}}},
    })
}

#[test]
fn a_heaven_runs_as_it_is_planned_and_goes_on_where_its_branch_is() {
    let mut machine = Machine::new();
    let upstream = machine.bare_repository("up.git");
    let spec = spec(&upstream);
    machine.start(&spec, &EntryPoints::default());

    // Certificates of the server, of clients, and for tokens.
    let user = machine.kubectl(
        "a-controller",
        &["auth", "whoami", "--output=jsonpath={.status.userInfo.username} {.status.userInfo.groups}"],
    );
    assert!(user.starts_with("system:kube-scheduler") && user.contains("\"system:kube-scheduler\""), "{user}");
    let admin = |machine: &Machine, arguments: &[&str]| machine.kubectl("a-admin", arguments);
    admin(&machine, &["create", "namespace", "plant"]);
    admin(&machine, &["create", "serviceaccount", "robot", "--namespace=plant"]);
    let token = admin(&machine, &["create", "token", "robot", "--namespace=plant"]);
    let robot =
        machine.kubectl_with_token(token.trim(), &["auth", "whoami", "--output=jsonpath={.status.userInfo.username}"]);
    assert_eq!(robot, "system:serviceaccount:plant:robot");

    // Writes are pushed, events are not.
    admin(&machine, &["create", "configmap", "tank", "--namespace=plant", "--from-literal=level=3"]);
    let event = r#"{"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "plant"}, "involvedObject": {"namespace": "plant"}, "reason": "Seen"}"#;
    machine.apply("a-admin", event);
    machine.until("the push", |machine| {
        let shown = machine.git(&upstream, &["show", "scheduler/data:configmaps/plant/tank"])?;
        if shown.contains(r#""level": "3""#) { Ok(()) } else { Err(shown) }
    });
    let files = machine.git(&upstream, &["ls-tree", "-r", "--name-only", "scheduler/data"]).unwrap();
    assert!(!files.lines().any(|file| file.starts_with("events")), "{files}");
    let events = admin(&machine, &["get", "events", "--namespace=plant", "--output=name"]);
    assert_eq!(events.trim(), "event/e");

    // Both stores have all objects, whatever the role: only kube-apiserver's certificate opens them.
    for pair in [None, Some(("mine/a-controller", "tls")), Some(("mine/a-admin", "tls"))] {
        for keys in machine.keys(pair) {
            assert!(keys.is_err(), "{pair:?} reads {keys:?}");
        }
    }
    let [store, events] = machine.keys(Some(("store", "store-client"))).map(Result::unwrap);
    assert!(
        store.contains("/registry/configmaps/plant/tank") && events.contains("/registry/events/plant/e"),
        "{store}"
    );

    // A new pod has only what the remote has.
    machine.stop();
    machine.forget();
    machine.start(&spec, &EntryPoints::default());
    let level = admin(&machine, &["get", "configmap", "tank", "--namespace=plant", "--output=jsonpath={.data.level}"]);
    assert_eq!(level, "3");
    let robot =
        machine.kubectl_with_token(token.trim(), &["auth", "whoami", "--output=jsonpath={.status.userInfo.username}"]);
    assert_eq!(robot, "system:serviceaccount:plant:robot");
    machine.stop();
}

#[test]
fn a_merge_and_a_script_of_the_user_run_as_they_are_planned() {
    let mut machine = Machine::new();
    let upstream = machine.bare_repository("up.git");
    machine.commit(
        &upstream,
        "desk/data",
        "configmaps/plant/tank",
        r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tank", "namespace": "plant"}}"#,
    );
    let spec = json!({
        "gitcd": {
            "git": {
                "branches": {"data": "cluster/data", "metadata": "cluster/metadata"},
                "remotes": [
                    {"name": "desk", "repo": upstream, "branches": {"data": "desk/data", "failOnNoBranch": true}},
                    {"name": "lap", "repo": upstream, "branches": {"data": "lap/data"}},
                ],
            },
            "pull": {"tickerDuration": "1s", "pushOnPullFailure": true},
        },
        "app": {"committerName": "automerge"},
    });
    // A script can do gitcd's work by the variables that it is given.
    machine.entry_point(
        "git-pre.sh",
        "#!/bin/sh\nset -eu\ntest -d \"$GITCD_REPO\" || git init --quiet --bare \"$GITCD_REPO\"\n\
         git -C \"$GITCD_REPO\" remote add \"$GITCD_REMOTE_NAME\" \"$GITCD_REMOTE_URL\"\necho \"$GITCD_REMOTE_NAME\" >> \"$HOME/prepared\"\n",
    );
    machine.start_merge(&spec, &EntryPoints { git_pre: true, gitcd_config: false });
    assert_eq!(machine.read("home/prepared"), "desk\nlap\n");
    machine.until("the push of the merge", |machine| {
        machine.git(&upstream, &["show", "cluster/data:configmaps/plant/tank"]).map(drop)
    });
    machine.stop();
}
